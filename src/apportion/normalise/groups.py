"""Each answer, or step, against the others of its group."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.errors import InputError
from apportion.moments import divided, moments

Normalise = Callable[[Float[Tensor, "N K"], Bool[Tensor, "N K"], Int[Tensor, " N"]], Float[Tensor, "N K"]]


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
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Divide by the group's spread: normalised = credit / std(group). Signs and zeros stay.

    Law: unchanged when all credit of a group is multiplied by a constant (and spreads by more than `min_std` before and
    after). Source: GRPO, arXiv:2402.03300.

    >>> group_std(torch.tensor([[1.0], [-1.0], [0.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    std = moments(credit, mask, groups, across).std
    return divided(credit, std[groups].unsqueeze(1), mask, min_std)


def group_std_plus(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    eps: float = 1e-4,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Divide by the group's spread and a little more: normalised = credit / (std(group) + eps). Signs and zeros stay.

    What most frameworks call GRPO (TRL: eps = 1e-4, verl: 1e-6). A group whose spread is near `eps` counts for less.
    Law: unchanged when all credit of a group and `eps` are multiplied by a constant. Identity: `group_std` times
    std / (std + eps). Source: the implementations; the paper (arXiv:2402.03300) has no eps. Raises InputError unless
    eps is positive.

    >>> group_std_plus(torch.tensor([[1.0], [-1.0], [0.0]]), torch.ones(3, 1).bool(), torch.tensor([0, 0, 0]), eps=1.0)
    tensor([[ 0.5000],
            [-0.5000],
            [ 0.0000]])
    """
    if not eps > 0:
        raise InputError(f"what is added to a group's spread must be positive, got {eps}")
    std = moments(credit, mask, groups, across).std[groups].unsqueeze(1)
    spread = mask & (std > min_std)
    return torch.where(spread, credit / (std + eps), 0).to(credit.dtype)


def group_mean_std(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Centre and scale in the group: normalised = (credit - mean(group)) / std(group).

    Law: a group's entries have mean 0 and standard deviation 1. Identity: `group_std` of centred credit.

    >>> group_mean_std(torch.tensor([[3.0], [1.0], [2.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    found = moments(credit, mask, groups, across)
    centred = torch.where(mask, credit, 0).double() - found.mean[groups].unsqueeze(1)
    return divided(centred, found.std[groups].unsqueeze(1), mask, min_std).to(credit.dtype)


def group_increment_std(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Divide by the group's spread of what each step added: normalised = credit / std(credit[k] - credit[k+1]).

    For credit that is a sum to go: what a step added is its own reward over its baseline. Law: as `group_std`.
    Identity: of rollouts of one step, `group_std`. Source: GRPO with process supervision, arXiv:2402.03300, 4.1.3.

    >>> group_increment_std(torch.tensor([[3.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool), torch.tensor([0]))
    tensor([[4.2426, 1.4142]])
    """
    used = torch.where(mask, credit, 0)
    increments = used - torch.nn.functional.pad(used[:, 1:], (0, 1))
    std = moments(increments, mask, groups, across).std
    return divided(credit, std[groups].unsqueeze(1), mask, min_std)


def leave_one_out(
    credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"], *, across: Across = ALONE
) -> Float[Tensor, "N K"]:
    """Subtract the mean credit of the group's other steps: normalised = credit - mean(others). Alone: 0.

    Law: a group's entries sum to 0. Identity: for whole answers and values of 0, the credit of RLOO
    (arXiv:2402.14740).

    >>> leave_one_out(torch.tensor([[1.0], [0.0], [0.5]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 0, 0]))
    tensor([[ 0.7500],
            [-0.7500],
            [ 0.0000]])
    """
    found = moments(credit, mask, groups, across)
    # credit - mean(others) = n / (n - 1) * (credit - mean), and the mean of equal credit is that credit
    stretch = (found.count / (found.count - 1).clamp(min=1))[groups].unsqueeze(1)
    centred = torch.where(mask, credit, 0).double() - found.mean[groups].unsqueeze(1)
    return torch.where(mask, stretch * centred, 0).to(credit.dtype)
