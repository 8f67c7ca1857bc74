"""Runs of equal entries."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def begins(entries: Int[Tensor, " E"]) -> Bool[Tensor, " E"]:
    """True at the first entry and wherever one differs from the one before it.

    >>> begins(torch.tensor([4, 4, 2]))
    tensor([ True, False,  True])
    """
    changed = torch.ones_like(entries, dtype=torch.bool)
    changed[1:] = entries[1:] != entries[:-1]
    return changed
