"""Entropy in the loss, and the tokens where the policy was least sure."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError
from apportion.losses.tokens import kept


def entropy_bonus(entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -entropy[t]: more entropy, lower loss.

    The mask is its own: give that of the policy's loss, or another one on purpose, and weigh by that mask as well.

    >>> entropy_bonus(torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]))
    tensor([[-0.5000, -0.0000]])
    """
    return -kept(entropy, mask)


def top_entropy_mask(entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], keep: float) -> Bool[Tensor, "B T"]:
    """Keep the tokens whose entropy is not below the (1 - keep) quantile of those that count.

    The quantile is interpolated linearly, and taken over the tokens that count alone: padding would pull it down. Of
    equal entropies all or none are kept. Make it once, on the whole batch. Source: arXiv:2506.01939.

    Raises InputError unless 0 < keep <= 1.

    >>> top_entropy_mask(torch.tensor([[0.1, 0.9, 0.5, 7.0]]), torch.tensor([[True, True, True, False]]), 0.5)
    tensor([[False,  True,  True, False]])
    """
    if not 0 < keep <= 1:
        raise InputError(f"keep is {keep}; the share of tokens to keep is above 0 and at most 1")
    ordered = entropy[mask].detach().sort().values
    if not len(ordered):
        return torch.zeros_like(mask)
    # the first entry at or above the quantile, which lies at (1 - keep) * (n - 1)
    lowest = ordered[math.ceil((1 - keep) * (len(ordered) - 1))]
    return mask & (entropy >= lowest)
