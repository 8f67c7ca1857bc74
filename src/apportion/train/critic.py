"""A critic beside the policy: it gives the values of states, and learns from what came of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion import losses, normalise, recipes
from apportion.ledger import Ledger, apportion
from apportion.policy import layouts, value_model
from apportion.policy.causal import CausalPolicy
from apportion.rewards.mixing import Bootstrapped
from apportion.rollouts import Rollouts
from apportion.rollouts.scores import Scores
from apportion.train.collect import begun_from
from apportion.train.config import TrainConfig
from apportion.train.learner import Learner
from apportion.train.processes import Wrapping
from apportion.train.rows import Rows
from apportion.train.tally import Figures

QUARTERS = 4
"""Stretches of an answer for which the explained variance is told apart."""


@dataclass(frozen=True, eq=False)
class Lesson(Rows):
    """What a critic is to learn from; grids are by the token that is chosen next.

    values: of the state before each token, as the credit used them. returns: what came of it.
    """

    rollout_of: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    values: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


class Critic:
    """The network that learns, and the slower one that is asked.

    target: an exponential mean of the weights so far, `critic_ema` of it from before; of 0, the network as it is.
    """

    def __init__(self, policy: CausalPolicy, config: TrainConfig, wrap: Wrapping) -> None:
        self.config, self.across = config, wrap.across
        self.layout = layouts.BY_NAME[config.layout]
        self._device = policy.model.device
        with begun_from(config, "critic"):
            network = value_model.BY_NAME[config.critic](policy.model)
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.learner = Learner(
            network,
            wrap,
            learning_rate=config.critic_learning_rate or config.learning_rate / 2,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        )

    @torch.no_grad()
    def valued(self, rollouts: Rollouts) -> Rollouts:
        """The same with the critic's value of the state before every sampled token, and of the last where cut off."""
        before, last = _cells(rollouts)
        grids = self.across.spread(range(len(rollouts)), lambda rows: self._asked(rollouts, before | last, list(rows)))
        values = torch.stack([row.to(rollouts.tokens.device) for row in grids])
        ends = torch.where(rollouts.ended, torch.nan, torch.where(last, values, 0).sum(1))
        chosen = values.roll(1, dims=1)[rollouts.action_mask]
        return replace(rollouts, step_values=Scores(chosen.double(), rollouts.action_counts), end_values=ends)

    def _asked(self, rollouts: Rollouts, cells: Tensor, rows: list[int]) -> list[Tensor]:
        found = []
        for part in torch.split(torch.tensor(rows, device=rollouts.tokens.device), self.config.micro_batch):
            columns = (rollouts.tokens[part], rollouts.valid_mask[part], cells[part])
            found += [row.clone() for row in self.target(*columns, layout=self.layout).cpu()]
        return found

    def learn(self, ledger: Ledger, order: torch.Generator) -> Figures:
        """Move towards what came of the states, in `critic_updates` shares, and the target after that.

        order: draws which rollouts are in which share. Gives the means over the shares.
        """
        lesson = self._lesson(ledger)
        rows = torch.randperm(len(lesson.tokens), generator=order).to(self._device)
        steps = [self._step(lesson, share) for share in rows.tensor_split(self.config.critic_updates)]
        self._follow()
        loss, norm = (sum(found) / len(steps) for found in zip(*steps, strict=True))
        skipped = sum(not (isfinite(loss) and isfinite(norm)) for loss, norm in steps)
        figures = {"critic_loss": loss, "critic_grad_norm": norm, "critic_skipped_updates": skipped}
        return figures | _explained(lesson)

    def _step(self, lesson: Lesson, share: Tensor) -> tuple[float, float]:
        own = lesson.take(share)
        own = replace(own, weights=losses.token_mean(own.mask, own.rollout_of))
        size, ranks = self.config.micro_batch, self.across.size
        parts = own.parts(own.lengths.argsort(stable=True), size, ranks)
        return self.learner.step(parts[self.across.rank :: ranks], self._loss)

    def _lesson(self, ledger: Ledger) -> Lesson:
        """Returns by GAE with `critic_lam` on the values that the credit used."""
        config = self.config
        recipe = replace(recipes.ppo(gamma=config.gamma, lam=config.critic_lam), normalise=normalise.none)
        paid = ledger.recipe.reward
        recipe = replace(recipe, reward=paid if isinstance(paid, Bootstrapped) else Bootstrapped(paid, config.gamma))
        by_token = apportion(ledger.rollouts, recipe)
        values, credit = (by_token.steps.to_tokens(grid) for grid in (by_token.value, by_token.credit))
        mask = by_token.mask
        return Lesson(
            tokens=ledger.rollouts.tokens,
            valid=ledger.rollouts.valid_mask,
            mask=mask,
            values=values.float(),
            returns=(values + credit).float(),
            weights=torch.zeros_like(values).float(),
            rollout_of=ledger.rollouts.rollout_of,
            action_mask=ledger.rollouts.action_mask,
        )

    def _loss(self, part: Lesson) -> Tensor:
        cells = part.action_mask.roll(-1, dims=1)  # of every row, so that no process is without a pass back
        values = self.learner.module(part.tokens, part.valid, cells, layout=self.layout).roll(1, dims=1)
        if self.config.critic_clip is None:
            loss = losses.value_loss(values, part.returns, part.mask)
        else:
            loss = losses.value_loss_clipped(values, part.values, part.returns, part.mask, clip=self.config.critic_clip)
        return losses.total(loss, part.weights)

    def _follow(self) -> None:
        with torch.no_grad():
            for slow, quick in zip(self.target.parameters(), self.learner.weights(), strict=True):
                slow.lerp_(quick, 1 - self.config.critic_ema)

    def state(self) -> dict[str, Any]:
        """All that the critic goes on from; every process must ask for it."""
        return {
            "optimiser": self.learner.state(),
            "network": [weights.cpu() for weights in self.learner.weights()],
            "target": [weights.cpu() for weights in self.target.parameters()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.learner.take(weights.to(self._device) for weights in state["network"])
        self.learner.load(state["optimiser"])
        with torch.no_grad():
            for own, saved in zip(self.target.parameters(), state["target"], strict=True):
                own.copy_(saved)


def _cells(rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """The cell before every sampled token, and the last of every rollout that was cut off."""
    before = rollouts.action_mask.roll(-1, dims=1)
    last = torch.zeros_like(before)
    last.scatter_(1, rollouts.valid_mask.sum(1, keepdim=True) - 1, ~rollouts.ended.unsqueeze(1))
    return before, last


def _explained(lesson: Lesson) -> Figures:
    """The share of the returns' variance that the values explained, in all and by quarter of the answer."""
    place = lesson.mask.cumsum(1) - 1
    quarter = place * QUARTERS // lesson.mask.sum(1, keepdim=True).clamp(min=1)
    return {
        "explained_variance": losses.explained_variance(lesson.values, lesson.returns, lesson.mask),
        "error_over_constant": _error_over_constant(lesson),
        **{
            f"explained_variance_quarter_{q + 1}": losses.explained_variance(
                lesson.values, lesson.returns, lesson.mask & (quarter == q)
            )
            for q in range(QUARTERS)
        },
    }


def _error_over_constant(lesson: Lesson) -> float | None:
    """The values' mean squared error over that of the best constant: over 1, a constant would have been better.

    Unlike the explained variance it counts a bias. None where the returns are all alike.
    """
    returns, values = lesson.returns[lesson.mask].double(), lesson.values[lesson.mask].double()
    best = float(returns.var(correction=0)) if returns.numel() else 0.0
    return float((values - returns).square().mean()) / best if best else None
