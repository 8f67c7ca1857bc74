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

from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts
from apportion.steps.grid import StepMap, added

Parts = dict[str, Tensor]


@runtime_checkable
class Reward(Protocol):
    """Named parts on the step grid, and in plain arithmetic what a rollout's parts must add up to."""

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts: ...

    def total(self, rollout: Rollout, steps: int) -> float: ...


def at_end(outcome: Float[Tensor, " N"], steps: StepMap) -> Float[Tensor, "N K"]:
    """Pay the outcome at the last step. Law: rows sum to the outcome, to 0 where it is NaN or nothing was sampled."""
    grid = torch.zeros(steps.mask.shape, dtype=outcome.dtype, device=outcome.device)
    paid = (steps.counts > 0) & ~outcome.isnan()
    last = (steps.counts - 1).clamp(min=0).unsqueeze(1)
    return grid.scatter_(1, last, torch.where(paid, outcome, 0).unsqueeze(1))


@dataclass(frozen=True)
class AsGiven:
    """The outcome at the last step plus the step rewards that came with the rollouts, each at full weight."""

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        parts = {"outcome": at_end(rollouts.outcome, steps)}
        if rollouts.step_rewards is not None:
            process = steps.place(rollouts.step_rewards, "step rewards", added)
            parts["process"] = process.to(rollouts.outcome.dtype)
        return parts

    def total(self, rollout: Rollout, steps: int) -> float:
        return (rollout.outcome or 0.0) + sum(rollout.step_rewards or ())


@dataclass(frozen=True)
class Mixed:
    """total = process * mean step reward + outcome * outcome.

    The mean, not the sum, so that an answer earns nothing by having more steps: each of n steps is paid
    `process / n` of its score. Raises InputError for a scored rollout without step rewards: none is not 0.
    """

    process: float
    outcome: float

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        rollouts.required(rollouts.step_rewards, "step_rewards to mix with its outcome")
        parts = AsGiven()(rollouts, steps)
        weighted = {"outcome": self.outcome * parts["outcome"]}
        if "process" in parts:
            counts = steps.counts.clamp(min=1).unsqueeze(1).to(parts["process"].dtype)
            weighted["process"] = self.process * parts["process"] / counts
        return weighted

    def total(self, rollout: Rollout, steps: int) -> float:
        process = sum(rollout.step_rewards or ()) / max(1, steps)
        return self.outcome * (rollout.outcome or 0.0) + self.process * process


@dataclass(frozen=True)
class Bootstrapped:
    """What was still expected where a rollout was cut off, as a part of its own at the last step.

    bootstrap = gamma * end_value for a rollout that did not end by itself, 0 for one that did. With the `gamma` of the
    credit function, gae on the sum is gae with the value after the last step in its place: a cut is no failure.
    Raises InputError for a scored rollout that was cut off and came without an end value.
    """

    reward: Reward
    gamma: float = 1.0

    def __call__(self, rollouts: Rollouts, steps: StepMap) -> Parts:
        cut = ~rollouts.ended & rollouts.votes
        ends = torch.full_like(rollouts.outcome, torch.nan) if rollouts.end_values is None else rollouts.end_values
        missing = (cut & ends.isnan()).nonzero()
        if len(missing):
            raise InputError(
                f"rollout {rollouts.ids[int(missing[0])]} was cut off and has no end_value to bootstrap from"
            )
        expected = self.gamma * torch.where(cut, ends, 0).to(rollouts.outcome.dtype)
        return self.reward(rollouts, steps) | {"bootstrap": at_end(expected, steps)}

    def total(self, rollout: Rollout, steps: int) -> float:
        return self.reward.total(rollout, steps) + (0.0 if rollout.ended else self.gamma * (rollout.end_value or 0.0))


AS_GIVEN = AsGiven()
MIXES: dict[str, Reward] = {
    "as_given": AS_GIVEN,
    "default": Mixed(process=0.7, outcome=0.3),
    "proof": Mixed(process=0.8, outcome=0.2),
    "sql": Mixed(process=0.8, outcome=0.2),
    "code": Mixed(process=0.8, outcome=0.2),
    "chat": Mixed(process=0.3, outcome=0.7),
}
