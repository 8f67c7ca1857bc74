"""Normalisation: credit on the step grid [N, K] in, the same shape out. Credit itself never normalises.

`mask` [N, K] is True at steps that count; all statistics are over those alone, in two passes (the mean first), and
every other entry comes out 0. `groups` [N] are dense indices. Standard deviations are of the sample (divided by
count - 1), as in `torch.std`. Where all credit that counts is equal, or spreads by less than `min_std`, there is
nothing to tell apart and the result is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError

Normalise = Callable[[Float[Tensor, "N K"], Bool[Tensor, "N K"], Int[Tensor, " N"]], Float[Tensor, "N K"]]

Rescale = Callable[[Float[Tensor, "N K"]], Float[Tensor, "N K"]]
Combine = Callable[[Float[Tensor, "N K"], Sequence[Float[Tensor, "N K"]], Rescale], Float[Tensor, "N K"]]


def sum_then_normalise(
    credit: Float[Tensor, "N K"], parts: Sequence[Float[Tensor, "N K"]], rescale: Rescale
) -> Float[Tensor, "N K"]:
    """Normalise the credit of the whole reward: a part with large numbers drowns the others."""
    return rescale(credit)


def normalise_then_sum(
    credit: Float[Tensor, "N K"], parts: Sequence[Float[Tensor, "N K"]], rescale: Rescale
) -> Float[Tensor, "N K"]:
    """Normalise the credit of each part of the reward by itself, then add up: every part weighs alike.

    Law: unchanged when a part is multiplied by a constant, if the normalisation is; so the weights of a mix of rewards
    have no say here. Identity: with one part,
    `sum_then_normalise`. Source: GDPO, arXiv:2601.05242.

    Raises InputError where the parts' credits do not add up to the credit, as with values that were given for the
    reward as a whole.
    """
    together = torch.stack(list(parts)).sum(0)
    if float((together - credit).abs().max()) > 1e-4 * float(credit.abs().max()):
        raise InputError(
            "normalise_then_sum needs values that can be worked out for each part of the reward; "
            "this recipe's are of the whole reward"
        )
    return torch.stack([rescale(part) for part in parts]).sum(0)


def none(credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
    """Leave credit as it is: normalised = credit.

    >>> none(torch.tensor([[1.0], [2.0]]), torch.tensor([[True], [False]]), torch.tensor([0, 0]))
    tensor([[1.],
            [0.]])
    """
    return torch.where(mask, credit, 0)


def group_std(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
) -> Float[Tensor, "N K"]:
    """Divide by the group's spread: normalised = credit / std(group). Signs and zeros stay.

    Law: unchanged when all credit of a group is multiplied by a constant (and spreads by more than `min_std` before and
    after). Source: GRPO, arXiv:2402.03300.

    >>> group_std(torch.tensor([[1.0], [-1.0], [0.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    _, std = _group_moments(credit, mask, groups)
    return _divided(credit, std[groups].unsqueeze(1), mask, min_std)


def group_mean_std(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
) -> Float[Tensor, "N K"]:
    """Centre and scale in the group: normalised = (credit - mean(group)) / std(group).

    Law: a group's entries have mean 0 and standard deviation 1. Identity: `group_std` of centred credit.

    >>> group_mean_std(torch.tensor([[3.0], [1.0], [2.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    mean, std = _group_moments(credit, mask, groups)
    return _divided(credit - mean[groups].unsqueeze(1), std[groups].unsqueeze(1), mask, min_std)


def leave_one_out(
    credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"]
) -> Float[Tensor, "N K"]:
    """Subtract the mean credit of the group's other steps: normalised = credit - mean(others). Alone: 0.

    Law: a group's entries sum to 0. Identity: for whole answers and values of 0, the credit of RLOO
    (arXiv:2402.14740).

    >>> leave_one_out(torch.tensor([[1.0], [0.0], [0.5]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 0.7500],
            [-0.7500],
            [ 0.0000]])
    """
    used = torch.where(mask, credit, 0)
    totals, counts = _group_sum(used, groups), _group_sum(mask.to(credit.dtype), groups)
    others = (totals[groups].unsqueeze(1) - used) / (counts[groups].unsqueeze(1) - 1).clamp(min=1)
    # equal credit less the mean of the others is 0, not a rounding of it; alone, all credit is equal
    compared = mask & ~_all_equal(credit, mask, groups)[groups].unsqueeze(1)
    return torch.where(compared, credit - others, 0)


def whiten(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
) -> Float[Tensor, "N K"]:
    """Centre and scale over the whole batch: normalised = (credit - mean) / std.

    Law: the entries that count have mean 0 and standard deviation 1. Identity: `group_mean_std` of one group.

    >>> whiten(torch.tensor([[3.0], [1.0], [2.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 1, 2]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    return group_mean_std(credit, mask, torch.zeros_like(groups), min_std=min_std)


def _group_sum(entries: Tensor, groups: Tensor) -> Tensor:
    size = int(groups.max()) + 1
    return torch.zeros(size, dtype=entries.dtype, device=entries.device).index_add(0, groups, entries.sum(1))


def _group_moments(credit: Tensor, mask: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sample standard deviation of each group; the deviation is exactly 0 where all entries are equal."""
    used = torch.where(mask, credit, 0)
    counts = _group_sum(mask.to(credit.dtype), groups)
    mean = _group_sum(used, groups) / counts.clamp(min=1)
    squares = torch.where(mask, credit - mean[groups].unsqueeze(1), 0).square()
    std = (_group_sum(squares, groups) / (counts - 1).clamp(min=1)).sqrt()
    return mean, torch.where(_all_equal(credit, mask, groups), 0, std)


def _all_equal(credit: Tensor, mask: Tensor, groups: Tensor) -> Tensor:
    size = int(groups.max()) + 1
    where = groups.unsqueeze(1).expand_as(mask)[mask]
    blank = torch.zeros(size, dtype=credit.dtype, device=credit.device)
    highest = blank.scatter_reduce(0, where, credit[mask], "amax", include_self=False)
    lowest = blank.scatter_reduce(0, where, credit[mask], "amin", include_self=False)
    return highest == lowest


def _divided(credit: Tensor, std: Tensor, mask: Tensor, min_std: float) -> Tensor:
    spread = mask & (std > min_std)
    return torch.where(spread, credit / torch.where(spread, std, 1), 0)


BY_NAME: dict[str, Normalise] = {
    "none": none,
    "group_std": group_std,
    "group_mean_std": group_mean_std,
    "leave_one_out": leave_one_out,
    "whiten": whiten,
}
COMBINE: dict[str, Combine] = {
    "sum_then_normalise": sum_then_normalise,
    "normalise_then_sum": normalise_then_sum,
}
