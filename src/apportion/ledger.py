"""The straight line from rollouts to advantages, in one function, and the ledger that keeps every column of it.

rollouts -> steps -> rewards -> values -> credit -> normalise -> spread
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion import files, laws
from apportion.credit import Credit
from apportion.errors import InputError, LawError
from apportion.files import Row
from apportion.laws import Residual
from apportion.normalise import Combine, Normalise, sum_then_normalise
from apportion.rewards.mixing import AS_GIVEN, Parts, Reward
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.steps.separation import merge_unseparated
from apportion.steps.splitters import Splitter
from apportion.steps.spread import Spread
from apportion.values.baselines import Value

Law = Callable[["Ledger"], Residual]


@dataclass(frozen=True)
class Recipe:
    """A published method: one choice for every stage of the line, and the laws that it keeps.

    min_spread: rollouts whose step values all lie within this of each other are credited as a whole, since their steps
    tell nothing apart; None = never.
    """

    name: str
    split: Splitter
    value: Value
    credit: Credit
    normalise: Normalise
    spread: Spread
    reward: Reward = AS_GIVEN
    combine: Combine = sum_then_normalise
    min_spread: float | None = None
    laws: tuple[Law, ...] = ()


@dataclass(frozen=True, eq=False)
class Ledger:
    """What `apportion` computed, stage by stage. Step grids are [N, K], token grids [B, T].

    cut: the steps as the splitter made them; steps: as they were credited (see `Recipe.min_spread`).
    parts: the named parts of the reward; reward: their sum.
    value: before each step. credit: raw, conserved. normalised: after normalisation.
    advantage: what multiplies the log-probability of each token; 0 where `mask` is False.
    mask: tokens that take part in the loss: sampled, and of a rollout that was scored.
    """

    rollouts: Rollouts
    recipe: Recipe
    cut: StepMap
    steps: StepMap
    parts: Parts
    reward: Float[Tensor, "N K"]
    value: Float[Tensor, "N K"]
    credit: Float[Tensor, "N K"]
    normalised: Float[Tensor, "N K"]
    advantage: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] = field(repr=False)

    def check(self) -> tuple[Residual, ...]:
        """Work out every law that the recipe declares, on this batch."""
        return tuple(law(self) for law in self.recipe.laws)

    def rows(self) -> list[Row]:
        """One row a rollout, as in a rollout file, with its part of the ledger under `ledger`."""
        advantages, step_of = self.advantage.flatten(), self.steps.step_of.flatten()
        places, votes = self.rollouts.places(), self.rollouts.votes.tolist()
        return [
            files.row_of(rollout) | {"ledger": self._columns(n, votes[n], step_of[places[n]], advantages[places[n]])}
            for n, rollout in enumerate(self.rollouts.rows())
        ]

    def _columns(self, n: int, scored: bool, step_of: Tensor, advantages: Tensor) -> Row:
        """Rollout n's columns: None, which is not 0, where it was not scored."""
        count = int(self.steps.counts[n])
        columns = {"value": self.value, "credit": self.credit, "normalised": self.normalised}
        return {
            "recipe": self.recipe.name,
            "step_of": step_of.tolist(),
            "parts": {name: grid[n, :count].tolist() for name, grid in self.parts.items()},
            "reward": self.reward[n, :count].tolist(),
            **{name: grid[n, :count].tolist() if scored else None for name, grid in columns.items()},
            "advantage": advantages.tolist() if scored else None,
        }

    def require_laws(self) -> Ledger:
        """Return self, or raise LawError naming the laws that do not hold."""
        broken = [str(found) for found in self.check() if not found.holds]
        if broken:
            raise LawError(f"recipe {self.recipe.name}: " + "; ".join(broken))
        return self


def apportion(rollouts: Rollouts, recipe: Recipe) -> Ledger:
    """Turn the scores of rollouts into an advantage for every sampled token.

    Raises InputError where the recipe needs what the rollouts do not hold, or a value in a used place is not finite.
    Warns of rollouts without any sampled token: they get zeros and have no vote in their group.
    """
    _warn_of_silent_rows(rollouts)
    cut = recipe.split(rollouts)
    counted = _counted(cut, rollouts)
    parts = recipe.reward(rollouts, cut)
    _warn_of_lost_places(rollouts, cut)
    reward = reduce(torch.add, parts.values())

    def value_of(reward: Tensor) -> Tensor:
        return torch.where(counted, recipe.value(rollouts, cut, reward), 0)

    value = value_of(reward)
    _refuse_endless(value, rollouts)
    values = [value_of(part) for part in parts.values()] if len(parts) > 1 else [value]
    steps = cut
    if recipe.min_spread is not None:
        fallback = merge_unseparated(cut, value, counted, recipe.min_spread)
        fallback.warn()
        steps, value, values = fallback.steps, fallback.values(value), [fallback.values(grid) for grid in values]
        reward, parts = fallback.rewards(reward), {name: fallback.rewards(grid) for name, grid in parts.items()}
        counted = _counted(steps, rollouts)

    def credit_of(reward: Tensor, value: Tensor) -> Tensor:
        credit = recipe.credit(reward, value)  # past a rollout's last step both are 0, and so is credit
        return credit if bool(rollouts.votes.all()) else torch.where(counted, credit, 0)

    credit = credit_of(reward, value)
    by_part = list(map(credit_of, parts.values(), values)) if len(parts) > 1 else [credit]
    normalised = recipe.combine(credit, by_part, lambda credit: recipe.normalise(credit, counted, rollouts.groups))
    return Ledger(
        rollouts=rollouts,
        recipe=recipe,
        cut=cut,
        steps=steps,
        parts=parts,
        reward=reward,
        value=value,
        credit=credit,
        normalised=normalised,
        advantage=recipe.spread(normalised, steps),
        mask=rollouts.counted_mask,
    )


def conservation(*, gamma: float = 1.0, lam: float = 0.0) -> Law:
    """Credit, peeled of the later credit that gamma and lam fold in, sums to reward minus starting value."""

    def law(ledger: Ledger) -> Residual:
        handed_in = _totals(ledger) if gamma == 1.0 else ledger.reward
        errors = laws.conservation(ledger.credit, handed_in, ledger.value[:, 0], gamma=gamma, lam=lam)
        return _residual("conservation", torch.where(ledger.rollouts.votes, errors, 0), ledger)

    return law


def consistency(ledger: Ledger) -> Residual:
    """Cutting a step in two keeps its total."""
    errors = laws.consistency(ledger.credit, ledger.recipe.credit, _counted_reward(ledger), ledger.value)
    return _residual("consistency", errors, ledger)


def traceability(ledger: Ledger) -> Residual:
    """A step's credit depends only on what is observed just before and after it."""
    errors = laws.traceability(ledger.credit, ledger.recipe.credit, _counted_reward(ledger), ledger.value)
    return _residual("traceability", errors, ledger)


def group_balance(ledger: Ledger) -> Residual:
    """The credit of a group sums to 0."""
    return _residual("group balance", laws.group_balance(ledger.credit, ledger.rollouts.groups), ledger)


def silence(ledger: Ledger) -> Residual:
    """Tokens that were not sampled or not scored have advantage exactly 0."""
    rollouts = ledger.rollouts
    scored = ~rollouts.of_tokens(rollouts.outcome).isnan()
    found = laws.silence(ledger.advantage, rollouts.action_mask & scored)
    return Residual("silence", float(found.abs().max()), int(found.abs().argmax()), 0.0)


def _residual(name: str, errors: Tensor, ledger: Ledger) -> Residual:
    largest = max(float(ledger.reward.abs().max()), float(ledger.value.abs().max()))
    scale = largest * ledger.credit.shape[1] * max(1, int(torch.bincount(ledger.rollouts.groups).max()))
    return laws.residual(name, errors, scale=scale, dtype=ledger.credit.dtype)


def _counted(steps: StepMap, rollouts: Rollouts) -> Tensor:
    """The steps of rollouts that have a vote."""
    return steps.mask if bool(rollouts.votes.all()) else steps.mask & rollouts.votes.unsqueeze(1)


def _counted_reward(ledger: Ledger) -> Tensor:
    return torch.where(ledger.rollouts.votes.unsqueeze(1), ledger.reward, 0)


def _totals(ledger: Ledger) -> Tensor:
    """The reward of each rollout [N, 1], worked out anew from the rollouts as they came."""
    rows = zip(ledger.rollouts.scored_rows(), ledger.cut.counts.tolist(), strict=True)
    totals = [ledger.recipe.reward.total(rollout, steps) for rollout, steps in rows]
    return torch.tensor(totals, dtype=torch.float64, device=ledger.credit.device).unsqueeze(1)


def _warn_of_silent_rows(rollouts: Rollouts) -> None:
    silent = (rollouts.action_counts == 0).nonzero().flatten().tolist()
    if silent:
        names = ", ".join(rollouts.ids[n] for n in silent[:3])
        warnings.warn(
            f"{len(silent)} of {len(rollouts)} rollouts have no sampled token (first: {names}); they get no credit",
            stacklevel=3,
        )


def _warn_of_lost_places(rollouts: Rollouts, steps: StepMap) -> None:
    if rollouts.step_rewards is None:
        return
    summed = (rollouts.step_rewards.counts > 1) & (steps.counts == 1)
    if bool(summed.any()):
        warnings.warn(
            f"the step rewards of {int(summed.sum())} rollouts are summed to one number each, since the whole answer "
            "is one step: where they stood is lost; split into steps to keep it",
            stacklevel=3,
        )


def _refuse_endless(value: Tensor, rollouts: Rollouts) -> None:
    if bool(value.sum().isfinite()):  # which it is not where an entry is not
        return
    endless = (~value.isfinite()).nonzero()
    if len(endless):
        n, k = endless[0].tolist()
        raise InputError(f"rollout {rollouts.ids[n]}, step {k}: the value before it is {float(value[n, k])}")
