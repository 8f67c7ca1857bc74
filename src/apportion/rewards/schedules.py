"""When and for whom steps are credited one by one, and when the outcome alone decides.

A schedule gives the weight of step credit, from 0 (outcome alone) to 1, as a function of how far training has come,
from 0 to 1. Both kinds of credit are step grids [N, K] and, made from the same rewards, add up to the same total in
every rollout; then so does all that is made of them here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rewards.bounds import refuse_outside

Schedule = Callable[[float], float]

ROUNDING = 1e-9
"""How far a share of a count may fall short of a whole number and still be it (0.29 * 100)."""


def constant(weight: float) -> Schedule:
    """The same weight all through training.

    Raises InputError for a weight outside 0 to 1; the schedule does for a progress outside 0 to 1, as all here do.

    >>> constant(0.5)(0.9)
    0.5
    """
    refuse_outside("weight", weight, 0.0, 1.0)

    def weight_at(progress: float) -> float:
        refuse_outside("progress", progress, 0.0, 1.0)
        return weight

    return weight_at


def outcome_only_until(share: float = 0.8) -> Schedule:
    """Outcome alone for the first `share` of training, step credit alone from there on.

    weight = 1 where progress >= share, else 0. Identity: outcome_only_until(0) is constant(1).
    Raises InputError for a share outside 0 to 1.

    >>> outcome_only_until(0.8)(0.75), outcome_only_until(0.8)(0.8)
    (0.0, 1.0)
    """
    refuse_outside("share", share, 0.0, 1.0)

    def weight_at(progress: float) -> float:
        refuse_outside("progress", progress, 0.0, 1.0)
        return float(progress >= share)

    return weight_at


def linear_ramp(start: float, end: float) -> Schedule:
    """Outcome alone up to `start`, step credit alone from `end` on, evenly from one to the other between.

    weight = clip((progress - start) / (end - start), 0, 1). Law: never falls.
    Raises InputError unless 0 <= start < end <= 1.

    >>> linear_ramp(0.25, 0.75)(0.5)
    0.5
    """
    if not 0 <= start < end <= 1:
        raise InputError(
            f"a ramp goes from a start of at least 0 to a later end of at most 1; {start} to {end} came "
            "(for a jump use outcome_only_until)"
        )

    def weight_at(progress: float) -> float:
        refuse_outside("progress", progress, 0.0, 1.0)
        return min(1.0, max(0.0, progress - start) / (end - start))

    return weight_at


def evenly(totals: Float[Tensor, " N"], mask: Bool[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Lay a rollout's credit evenly over its steps: credit[k] = total / steps.

    So an answer's outcome becomes credit on a grid of many steps. Repeated over tokens, it is one number for all tokens
    of the answer: the total over its steps, where `splitters.whole` would give each token the total itself.
    Law: rows sum to the totals, to 0 where that is NaN (not scored) or there is no step.

    >>> evenly(torch.tensor([1.0, 2.0]), torch.tensor([[True, True], [True, False]]))
    tensor([[0.5000, 0.5000],
            [2.0000, 0.0000]])
    """
    each = torch.where(totals.isnan(), 0, totals) / mask.sum(1).clamp(min=1)
    return torch.where(mask, each.unsqueeze(1), 0)


def blend(
    outcome_credit: Float[Tensor, "N K"],
    step_credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    *,
    weight: float,
) -> Float[Tensor, "N K"]:
    """Compute credit[k] = (1 - weight) * outcome_credit[k] + weight * step_credit[k].

    Law: a rollout on which the two agree in total keeps that total, for every weight. Identity: weight 0 is the
    outcome's credit, weight 1 that of the steps.

    Raises InputError for a weight outside 0 to 1.

    >>> blend(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]), torch.ones(1, 2).bool(), weight=0.5)
    tensor([[0.7500, 0.2500]])
    """
    refuse_outside("weight", weight, 0.0, 1.0)
    return (1 - weight) * torch.where(mask, outcome_credit, 0) + weight * torch.where(mask, step_credit, 0)


def best_of_group(
    outcome: Float[Tensor, " N"], groups: Int[Tensor, " N"], votes: Bool[Tensor, " N"], *, share: float = 0.2
) -> Bool[Tensor, " N"]:
    """Find the best `share` of each group by outcome.

    best = fewer than quota voters of the group are better; quota = floor(share * voters), at least 1 if share > 0.
    Equals are in or out together, in where one of them is: nothing tells them apart, and the order of rollouts must
    not. So more than the share are in where many are equal, and all are where all are. One that was not scored or has
    no vote is never in.
    Law: whoever is better than one that is in, is in; share 1 takes all voters, share 0 none.

    Raises InputError for a share outside 0 to 1.

    >>> best_of_group(torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0, 0, 1]), torch.ones(3).bool(), share=0.5)
    tensor([False,  True,  True])
    """
    refuse_outside("share", share, 0.0, 1.0)
    voters = (votes & ~outcome.isnan()).nonzero().squeeze(1)
    levels, level = torch.unique(outcome[voters], return_inverse=True)
    _, group = torch.unique(groups[voters], return_inverse=True)
    key = group * len(levels) - level  # rises group by group and within a group from the best on
    ranked = key.sort().values
    better = torch.searchsorted(ranked, key) - torch.searchsorted(ranked, group * len(levels) - (len(levels) - 1))
    quota = (share * torch.bincount(group).double() + ROUNDING).floor().clamp(min=int(share > 0))
    return torch.zeros_like(votes).index_copy(0, voters, better < quota[group])


def steps_for_the_best(
    outcome_credit: Float[Tensor, "N K"],
    step_credit: Float[Tensor, "N K"],
    best: Bool[Tensor, " N"],
    mask: Bool[Tensor, "N K"],
) -> Float[Tensor, "N K"]:
    """Credit the best rollouts step by step, the others by outcome.

    credit[k] = step_credit[k] where best, else outcome_credit[k].
    Law: a rollout on which the two agree in total keeps that total. Identity: where all are best, `blend` with weight
    1; where none is, with weight 0.

    >>> even, steps = torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> steps_for_the_best(even, steps, torch.tensor([True, False]), torch.ones(2, 2).bool())
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    return torch.where(mask, torch.where(best.unsqueeze(1), step_credit, outcome_credit), 0)
