"""Where the values of a rollout do not tell its steps apart, the whole answer takes their place.

A step whose value is that of its neighbours earns nothing but noise. So where all values of a rollout are alike, or
it has no boundary at all, its steps are merged into one: the answer is credited as a whole, discounted or not.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError
from apportion.steps.grid import StepMap

MIN_SPREAD = 0.05
"""Values that differ by no more than this are alike; for scores of 0 to 1."""


@dataclass(frozen=True, eq=False)
class Fallback:
    """Steps after those that do not separate were merged, and what carries step grids over to them.

    before: the steps as they were cut; steps: as they are credited, at most as many.
    which: the rollouts that are credited as a whole.
    """

    before: StepMap
    steps: StepMap
    which: Bool[Tensor, " N"]

    @property
    def merged(self) -> int:
        """Rollouts whose steps were merged into one."""
        return int((self.before.counts > self.steps.counts).sum())

    @property
    def unbroken(self) -> int:
        """Rollouts that had a single step anyhow."""
        return int(self.which.sum()) - self.merged

    def rewards(self, grid: Float[Tensor, "N K"], *, gamma: float = 1.0) -> Float[Tensor, "N J"]:
        """Pay a merged rollout's rewards at its one step: sum_k gamma^k rewards[k].

        gamma: the discount between steps as they were cut. Law: sum_k gamma^k credit[k] is what it was, for credit
        that conserves it; with gamma 1, the sum of credit.
        """
        kept = torch.where(self.before.mask, grid, 0)
        powers = gamma ** torch.arange(kept.shape[1], dtype=torch.float64, device=kept.device)
        return self._whole((kept * powers.to(kept.dtype)).sum(1), kept)

    def values(self, grid: Float[Tensor, "N K"]) -> Float[Tensor, "N J"]:
        """Take a merged rollout's starting value: that of the state before its one step."""
        kept = torch.where(self.before.mask, grid, 0)
        return self._whole(kept[:, 0], kept)

    def warn(self) -> None:
        """Warn once, with the counts, if any rollout is credited as a whole."""
        if bool(self.which.any()):
            warnings.warn(str(self), stacklevel=2)

    def __str__(self) -> str:
        return (
            f"{int(self.which.sum())} of {len(self.which)} rollouts are credited as a whole: "
            f"{self.merged} whose step values are alike, {self.unbroken} without a boundary"
        )

    def _whole(self, number: Tensor, kept: Tensor) -> Tensor:
        alone = torch.nn.functional.pad(number.unsqueeze(1), (0, kept.shape[1] - 1))
        return torch.where(self.which.unsqueeze(1), alone, kept)[:, : self.steps.width]


def unseparated(
    values: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], min_spread: float = MIN_SPREAD
) -> Bool[Tensor, " N"]:
    """True for a rollout whose values all lie within `min_spread` of each other: max_k V[k] - min_k V[k] <= min_spread.

    One step alone is alike to itself. A rollout without any step, or with a value that is no number, is False.
    Raises InputError for a spread below 0.

    >>> unseparated(torch.tensor([[0.5, 0.5], [0.5, 0.75]]), torch.ones(2, 2).bool())
    tensor([ True, False])
    """
    if not min_spread >= 0:
        raise InputError(f"values cannot lie within {min_spread} of each other; the spread must be 0 or more")
    highest = torch.where(mask, values, -torch.inf).amax(1)
    lowest = torch.where(mask, values, torch.inf).amin(1)
    return mask.any(1) & (highest - lowest <= min_spread)


def as_whole(steps: StepMap, which: Bool[Tensor, " N"]) -> StepMap:
    """Merge all steps of the chosen rollouts into one."""
    owner = torch.repeat_interleave(steps.counts)
    opens = ~which[owner]
    opens[steps.before[steps.counts > 0]] = True
    number = torch.cat([opens.new_zeros(1), opens]).cumsum(0, dtype=steps.number.dtype)
    return StepMap(number[steps.number], torch.where(which, steps.counts.clamp(max=1), steps.counts))


def merge_unseparated(
    steps: StepMap,
    values: Float[Tensor, "N K"],
    counted: Bool[Tensor, "N K"],
    min_spread: float = MIN_SPREAD,
) -> Fallback:
    """Fall back to the whole answer in rollouts whose values do not tell their steps apart.

    counted: steps whose values mean something; those of unscored rollouts do not, and they stay as they are.
    Law: what conserves credit before does after, sum credit = sum rewards - starting value.

    >>> from apportion.rollouts import Rollout, collate
    >>> from apportion.steps.tokens import every_token
    >>> steps = every_token(collate([Rollout(tokens=[1, 2], action_mask=[True, True], group=0)]))
    >>> fallback = merge_unseparated(steps, torch.tensor([[0.5, 0.5]]), steps.mask)
    >>> fallback.rewards(torch.tensor([[0.0, 1.0]])) - fallback.values(torch.tensor([[0.5, 0.5]]))
    tensor([[0.5000]])
    """
    which = unseparated(values, counted & steps.mask, min_spread)
    return Fallback(before=steps, steps=as_whole(steps, which), which=which)
