"""One-row grids for the tests of losses, and the gradient of a loss by one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ON = torch.tensor([[True, True]])


def grid(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def marks(*flags: int) -> Tensor:
    return torch.tensor([flags]).bool()


def gradient(loss: Callable[[Tensor], Tensor], entries: Tensor) -> list[float]:
    """The derivative of the summed loss by each entry of a one-row grid."""
    leaf = entries.clone().requires_grad_()
    loss(leaf).sum().backward()
    assert leaf.grad is not None
    numbers: list[float] = leaf.grad[0].tolist()
    return numbers
