"""Conflict: steps that are scored high in an answer that is wrong.

Either the steps are scored too kindly or one slip undid them. Added up, the two would hide each other; here the
conflict is found, the process reward is pulled down, and what it costs has a name of its own.

`scores` [N, K] are the step scores as the judge gave them, `mask` True where a step was scored: one without a score did
not score 0. An outcome of NaN is no outcome, and such a rollout is in no conflict and in no figure.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.rewards.bounds import refuse_outside

LEAST_SPREAD = 1e-12
"""Spread, as a share of the largest number, that rounding in float64 may make of equal numbers."""


class PulledDown(NamedTuple):
    """Two parts of the reward, `process` and `conflict`; and for the log, what the factor took from `process`."""

    process: Float[Tensor, "N K"]
    conflict: Float[Tensor, "N K"]
    dropped: Float[Tensor, "N K"]


def conflicts(
    scores: Float[Tensor, "N K"],
    outcome: Float[Tensor, " N"],
    mask: Bool[Tensor, "N K"],
    *,
    threshold: float = 0.7,
    wrong_up_to: float = 0.0,
) -> Bool[Tensor, " N"]:
    """Find rollouts whose steps are scored high and whose outcome is wrong.

    conflict = mean_k scores[k] >= threshold and outcome <= wrong_up_to.
    Law: a higher threshold or a lower line finds no others; rollouts do not bear on one another.

    Raises InputError for a threshold or line that is not finite.

    >>> conflicts(torch.tensor([[0.75, 1.0], [0.75, 1.0]]), torch.tensor([0.0, 1.0]), torch.ones(2, 2).bool())
    tensor([ True, False])
    """
    refuse_outside("threshold", threshold)
    refuse_outside("wrong_up_to", wrong_up_to)
    # the mean of the excess, not the mean less the threshold: of scores that all stand at it, it is 0 and no rounding
    excess = (torch.where(mask, scores, threshold) - threshold).sum(1)
    return mask.any(1) & (excess >= 0) & (outcome <= wrong_up_to)


def pull_down(
    process: Float[Tensor, "N K"],
    in_conflict: Bool[Tensor, " N"],
    mask: Bool[Tensor, "N K"],
    *,
    factor: float = 0.5,
    penalty: float = 0.0,
) -> PulledDown:
    """Multiply the process reward of rollouts in conflict, and charge them a penalty at their last step.

    In conflict: process'[k] = factor * process[k], conflict[last] = -penalty; else process' = process, conflict = 0.
    dropped = process - process', which is no part of the reward.
    Law: process' + dropped = process; a rollout's reward never rises where its process rewards sum to 0 or more.
    Identity: with factor 1 and penalty 0, or without conflicts, nothing changes.

    `mask` is True where a step is, scored or not. Raises InputError for a factor outside 0 to 1, or a penalty that is
    not finite or below 0.

    >>> pull_down(torch.tensor([[1.0, 0.5]]), torch.tensor([True]), torch.ones(1, 2).bool(), penalty=0.25)[:2]
    (tensor([[0.5000, 0.2500]]), tensor([[ 0.0000, -0.2500]]))
    """
    refuse_outside("factor", factor, 0.0, 1.0)
    refuse_outside("penalty", penalty, 0.0)
    used = torch.where(mask, process, 0)
    charged = in_conflict.unsqueeze(1)
    kept = torch.where(charged, factor * used, used)
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return PulledDown(kept, torch.where(charged & last, process.new_full((), -penalty), 0), used - kept)


def conflict_share(
    in_conflict: Bool[Tensor, " N"], outcome: Float[Tensor, " N"], mask: Bool[Tensor, "N K"]
) -> float | None:
    """The share of rollouts in conflict among those that have an outcome and a scored step; None where there are none.

    >>> conflict_share(torch.tensor([True, False]), torch.tensor([0.0, 1.0]), torch.ones(2, 1).bool())
    0.5
    """
    both = _judged_twice(outcome, mask)
    return float(in_conflict[both].double().mean()) if both.any() else None


def correlation(scores: Float[Tensor, "N K"], outcome: Float[Tensor, " N"], mask: Bool[Tensor, "N K"]) -> float | None:
    """Correlate (Pearson) the mean step score with the outcome, over rollouts that have both.

    None where that is undefined: less than two such rollouts, or all alike on one side.
    Law: from -1 to 1; unchanged when either side is shifted or multiplied by a number over 0.

    >>> correlation(torch.tensor([[0.5], [1.0]]), torch.tensor([0.0, 1.0]), torch.ones(2, 1).bool())
    1.0
    """
    both = _judged_twice(outcome, mask)
    sums = torch.where(mask, scores, 0).double().sum(1)
    sides = torch.stack([sums / mask.sum(1), outcome.double()])[:, both]
    if not both.any() or bool((sides.amax(1) - sides.amin(1) <= LEAST_SPREAD * sides.abs().amax(1)).any()):
        return None
    x, y = sides - sides.mean(1, keepdim=True)
    return float(((x @ y) / (x @ x * (y @ y)).sqrt()).clamp(-1, 1))


def _judged_twice(outcome: Tensor, mask: Tensor) -> Tensor:
    return mask.any(1) & ~outcome.isnan()
