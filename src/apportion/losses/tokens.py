"""What every loss begins with: only entries that count, and what a token's whole rollout holds of them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MOST_NATS = 20.0
"""Largest exponent that is taken of a difference of log-probabilities."""


def kept(entries: Tensor, mask: Tensor) -> Tensor:
    """Take the entries that count; 0 elsewhere, whatever stood there."""
    return torch.where(mask, entries, 0)


def rollout_sum(
    entries: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Give every token the sum of its rollout's entries that count, however the rollouts are laid out.

    >>> rollout_sum(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[True, False, True]]), torch.tensor([[0, 0, 0]]))
    tensor([[5., 5., 5.]])
    """
    owner = rollout_of.clamp(min=0)  # padding is no rollout's; what it is given does not count
    sums = entries.new_zeros(int(owner.max()) + 1).index_add(0, owner[mask], entries[mask])
    return sums[owner]
