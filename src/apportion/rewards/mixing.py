"""From a judge's numbers to one reward a step, every part under its own name.

A reward function takes rollouts and their step map and gives named parts, each a step grid [N, K]; the reward is
their sum. Unscored rollouts get 0 here and never enter a statistic or a loss (`Rollouts.votes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.rollouts import Rollouts, Scores
from apportion.steps.grid import StepMap

Parts = dict[str, Tensor]


@runtime_checkable
class Reward(Protocol):
    """Named parts on the step grid, and in plain arithmetic what a rollout's parts must add up to."""

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts: ...

    def total(self, outcome: float, scores: Scores, steps: int) -> float: ...


def at_end(outcome: Float[Tensor, " N"], steps: StepMap) -> Float[Tensor, "N K"]:
    """Pay the outcome at the last step. Law: rows sum to the outcome, to 0 where it is NaN or nothing was sampled."""
    grid = torch.zeros(steps.mask.shape, dtype=outcome.dtype, device=outcome.device)
    paid = (steps.counts > 0) & ~outcome.isnan()
    last = (steps.counts - 1).clamp(min=0).unsqueeze(1)
    return grid.scatter(1, last, torch.where(paid, outcome, 0).unsqueeze(1))


@dataclass(frozen=True)
class AsGiven:
    """The outcome at the last step plus the step rewards that came with the rollouts, each at full weight."""

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        parts = {"outcome": at_end(rollouts.outcome, steps)}
        if any(row is not None for row in rollouts.step_rewards):
            process = steps.place(rollouts.step_rewards, "step rewards", sum)
            parts["process"] = process.to(rollouts.outcome.dtype)
        return parts

    def total(self, outcome: float, scores: Scores, steps: int) -> float:
        return outcome + sum(scores or ())


@dataclass(frozen=True)
class Mixed:
    """total = process * mean step reward + outcome * outcome.

    The mean, not the sum, so that an answer earns nothing by having more steps: each of n steps is paid
    `process / n` of its score. Raises InputError for a scored rollout without step rewards: none is not 0.
    """

    process: float
    outcome: float

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        rollouts.refuse_missing(rollouts.step_rewards, "step_rewards to mix with its outcome")
        parts = AsGiven()(rollouts, steps)
        weighted = {"outcome": self.outcome * parts["outcome"]}
        if "process" in parts:
            counts = steps.counts.clamp(min=1).unsqueeze(1).to(parts["process"].dtype)
            weighted["process"] = self.process * parts["process"] / counts
        return weighted

    def total(self, outcome: float, scores: Scores, steps: int) -> float:
        return self.outcome * outcome + self.process * sum(scores or ()) / max(1, steps)


AS_GIVEN = AsGiven()
MIXES: dict[str, Reward] = {
    "as_given": AS_GIVEN,
    "default": Mixed(process=0.7, outcome=0.3),
    "proof": Mixed(process=0.8, outcome=0.2),
    "sql": Mixed(process=0.8, outcome=0.2),
    "code": Mixed(process=0.8, outcome=0.2),
    "chat": Mixed(process=0.3, outcome=0.7),
}
