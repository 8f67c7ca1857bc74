"""One scale for the whole batch."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.errors import InputError
from apportion.moments import divided, moments
from apportion.normalise.groups import Normalise, group_mean_std


def whiten(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Centre and scale over the whole batch: normalised = (credit - mean) / std.

    Law: the entries that count have mean 0 and standard deviation 1. Identity: `group_mean_std` of one group.

    >>> whiten(torch.tensor([[3.0], [1.0], [2.0]]), torch.ones(3, 1, dtype=torch.bool), torch.tensor([0, 1, 2]))
    tensor([[ 1.],
            [-1.],
            [ 0.]])
    """
    return group_mean_std(credit, mask, torch.zeros_like(groups), min_std=min_std, across=across)


def block_whiten(size: int) -> Normalise:
    """Whiten steps 0..size-1 of all rollouts together, then the next `size`, and so on along long answers.

    So an early step with an extreme value does not set the scale of the late ones, which are fewer.
    Law: the entries of a block that count have mean 0 and standard deviation 1. Identity: with `size` of at least K,
    `whiten`.

    Raises InputError for a size under 1.

    >>> block_whiten(1)(torch.tensor([[3.0, 9.0], [1.0, 7.0]]), torch.ones(2, 2).bool(), torch.tensor([0, 0]))
    tensor([[ 0.7071,  0.7071],
            [-0.7071, -0.7071]])
    """
    if size < 1:
        raise InputError(f"a block must hold at least 1 step, got {size}")

    def normalise(
        credit: Float[Tensor, "N K"],
        mask: Bool[Tensor, "N K"],
        groups: Int[Tensor, " N"],
        *,
        min_std: float = 1e-6,
        across: Across = ALONE,
    ) -> Float[Tensor, "N K"]:
        # a block by itself is a row of entries, so blocks become groups: [blocks, N * size]
        rows, steps = credit.shape
        count = -(-steps // size)
        padded = [torch.nn.functional.pad(grid, (0, count * size - steps)) for grid in (credit, mask)]
        blocks, counts = (grid.view(rows, count, size).transpose(0, 1).reshape(count, rows * size) for grid in padded)
        index = torch.arange(count, device=credit.device)
        white = group_mean_std(blocks, counts, index, min_std=min_std, across=across)
        return white.view(count, rows, size).transpose(0, 1).reshape(rows, count * size)[:, :steps]

    return normalise


def mean_abs(
    credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"], *, across: Across = ALONE
) -> Float[Tensor, "N K"]:
    """Divide by the mean size in the batch: normalised = credit / mean|credit|. Every sign stays.

    Law: the entries that count have a mean size of 1, unless all are 0.

    >>> mean_abs(torch.tensor([[3.0], [-1.0]]), torch.ones(2, 1, dtype=torch.bool), torch.tensor([0, 0]))
    tensor([[ 1.5000],
            [-0.5000]])
    """
    size = moments(credit.abs(), mask, torch.zeros_like(groups), across).mean
    return divided(credit, size.expand(len(credit)).unsqueeze(1), mask, 0.0)


def constant(divisor: float) -> Normalise:
    """Divide by a number: normalised = credit / divisor. The same on any batch and any number of processes.

    Identity: with divisor 1, `none`. Raises InputError unless the divisor is positive and finite.

    >>> constant(4.0)(torch.tensor([[3.0]]), torch.tensor([[True]]), torch.tensor([0]))
    tensor([[0.7500]])
    """
    if not (math.isfinite(divisor) and divisor > 0):
        raise InputError(f"credit can be divided by a positive number only, got {divisor}")

    def normalise(
        credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"]
    ) -> Float[Tensor, "N K"]:
        return torch.where(mask, credit, 0) / divisor

    return normalise
