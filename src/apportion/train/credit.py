"""How a run credits its rollouts: by its recipe, and by what of it changes as training goes on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion import normalise
from apportion.ledger import Ledger, Recipe, apportion
from apportion.normalise import RunningMoments
from apportion.policy import layouts
from apportion.policy.causal import Reference
from apportion.recipes import by_name
from apportion.rewards.mixing import Bootstrapped, Parts, Reward
from apportion.rewards.schedules import Schedule, linear_ramp, outcome_only_until
from apportion.rewards.shaping import kl_penalty
from apportion.rollouts import Rollout, Rollouts
from apportion.steps.grid import StepMap
from apportion.tasks.problem import Problem
from apportion.train import values
from apportion.train.collect import Collector
from apportion.train.config import RUNNING, TrainConfig
from apportion.train.made import recipe_of
from apportion.values.baselines import given


class Crediting:
    """The recipe of a run, step by step.

    seen: moments of all credit of steps so far, where `normalise` is running.
    """

    def __init__(self, config: TrainConfig, collector: Collector, reference: Reference | None) -> None:
        self.config, self.collector, self.reference = config, collector, reference
        self.recipe = self._normalised(recipe_of(config))
        self.outcome_recipe = by_name(config.outcome_recipe)
        self.seen = RunningMoments()
        self._weight = schedule_of(config)

    def weight(self, step: int, generated: int) -> float:
        """What step credit weighs in a step: 0 = outcome alone, 1 = steps alone. Progress is by steps or by tokens."""
        spent = generated / (self.config.token_budget or torch.inf)
        return self._weight(min(1.0, max(step / self.config.steps, spent)))

    def ledger(
        self, rollouts: Rollouts, problems: Sequence[Problem], step: int, *, weight: float, kl_beta: float
    ) -> Ledger:
        """Credit rollouts, the steps with `weight` in it. Raises LawError where a law of a recipe does not hold."""
        by_outcome, by_steps = self.outcome_recipe, self.recipe if weight == 0 else self._valued(problems, step)
        if self.config.kl_in == "reward":
            penalty = self._penalty(rollouts, kl_beta)
            by_outcome, by_steps = (penalised(recipe, rollouts, penalty) for recipe in (by_outcome, by_steps))
        if weight == 0:
            return apportion(rollouts, by_outcome).require_laws()
        ledger = self._by_steps(rollouts, by_steps)
        if weight == 1:
            return ledger
        whole = apportion(rollouts, by_outcome).require_laws()
        return replace(ledger, advantage=torch.lerp(whole.advantage, ledger.advantage, weight))

    def state(self) -> dict[str, float]:
        return vars(self.seen)

    def load(self, state: dict[str, float]) -> None:
        self.seen = RunningMoments(**state)

    def _valued(self, problems: Sequence[Problem], step: int) -> Recipe:
        """The recipe; where it takes its values as given and no critic gave them, the config says who does."""
        if self.recipe.value is not given or self.config.values == "critic":
            return self.recipe
        return replace(self.recipe, value=values.BY_NAME[self.config.values](self.collector, problems, step))

    def _by_steps(self, rollouts: Rollouts, recipe: Recipe) -> Ledger:
        if self.config.mc_best_share == 1:
            return apportion(rollouts, recipe).require_laws()
        with warnings.catch_warnings():  # the steps of the others have one value, and so make one step
            warnings.filterwarnings("ignore", message=".*rollouts are credited as a whole")
            return apportion(rollouts, replace(recipe, min_spread=recipe.min_spread or 0.0)).require_laws()

    def _normalised(self, recipe: Recipe) -> Recipe:
        """The recipe with the normalisation that the config asks for, if it does."""
        name = self.config.normalise
        if name is None:
            return recipe
        return replace(recipe, normalise=self._running if name == RUNNING else normalise.BY_NAME[name])

    def _running(
        self, credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"]
    ) -> Float[Tensor, "N K"]:
        """Whiten by all credit up to here, this batch and all."""
        self.seen = self.seen.updated(credit, mask)
        return self.seen.whiten(credit, mask, groups)

    @torch.no_grad()
    def _penalty(self, rollouts: Rollouts, kl_beta: float) -> Float[Tensor, "B T"]:
        """What every sampled token is paid for straying from the starting model. Law: see `kl_penalty`."""
        config = self.config
        assert self.reference is not None
        assert rollouts.logprobs is not None

        def ask(rows: Sequence[int]) -> list[Tensor]:
            found: list[Tensor] = []
            for part in torch.split(torch.tensor(rows, device=rollouts.tokens.device), config.micro_batch):
                columns = (rollouts.tokens[part], rollouts.valid_mask[part], rollouts.action_mask[part])
                chosen, _ = model.logprobs(*columns, temperature=config.temperature, layout=layout)
                found += chosen.cpu()
            return found

        layout = layouts.BY_NAME[config.layout]
        with self.reference() as model:
            by_reference = torch.stack(self.collector.policy.across.spread(range(len(rollouts)), ask))
        by_reference = by_reference.to(rollouts.tokens.device)
        return kl_penalty(rollouts.logprobs, by_reference, rollouts.action_mask, coef=kl_beta)


@dataclass(frozen=True, eq=False)
class Penalised:
    """A reward, and what every token is paid besides, as a part of its own: `kl`. totals: of a rollout, by its id."""

    reward: Reward
    tokens: Float[Tensor, "B T"]
    totals: dict[str, float]

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        paid = torch.where(rollouts.votes.unsqueeze(1), steps.sum(self.tokens), 0)
        return self.reward(rollouts, steps) | {"kl": paid.to(rollouts.outcome.dtype)}

    def total(self, rollout: Rollout, steps: int) -> float:
        return self.reward.total(rollout, steps) + self.totals[rollout.id]


def schedule_of(config: TrainConfig) -> Schedule:
    """The weight of step credit along the run."""
    if config.step_credit_full is None:
        return outcome_only_until(config.step_credit_from)
    return linear_ramp(config.step_credit_from, config.step_credit_full)


def penalised(recipe: Recipe, rollouts: Rollouts, tokens: Float[Tensor, "B T"]) -> Recipe:
    """The recipe with what tokens are paid besides. What an answer that was cut off is still worth stays on top."""
    sums = tokens.sum(1, dtype=torch.float64).tolist()

    def with_penalty(reward: Reward) -> Reward:
        if isinstance(reward, Bootstrapped):
            return replace(reward, reward=with_penalty(reward.reward))
        return Penalised(reward, tokens, dict(zip(rollouts.ids, sums, strict=True)))

    return replace(recipe, reward=with_penalty(recipe.reward))
