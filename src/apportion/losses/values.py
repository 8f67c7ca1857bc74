"""Losses of the critic, and how much of the returns it explains. `values[t]` is of the state before token t."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.losses.tokens import kept


def value_loss(
    values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Compute loss[t] = (values[t] - returns[t])^2 / 2. No gradient flows into the returns.

    >>> value_loss(torch.tensor([[1.0, 9.0]]), torch.tensor([[3.0, 0.0]]), torch.tensor([[True, False]]))
    tensor([[2., 0.]])
    """
    return (kept(values, mask) - kept(returns, mask).detach()).square() / 2


def value_loss_clipped(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip: float = 0.2,
) -> Float[Tensor, "B T"]:
    """Compute the larger of `value_loss` and that of values kept within old_values +- clip.

    Once the critic has moved by `clip` towards the return, it is pushed no further on this batch.
    Law: never below `value_loss`. Identity: `value_loss` where no value has moved by more than `clip`.
    Source: arXiv:2005.12729, section 3.

    >>> one = torch.ones(1, 1)
    >>> value_loss_clipped(one, 0 * one, 2 * one, one.bool(), clip=0.5)
    tensor([[1.1250]])
    """
    new, old = kept(values, mask), kept(old_values, mask).detach()
    near = old + (new - old).clamp(-clip, clip)
    return torch.maximum(value_loss(new, returns, mask), value_loss(near, returns, mask))


def explained_variance(
    values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> float | None:
    """Compute 1 - var(returns - values) / var(returns) over the entries that count.

    1 = all of it, 0 = no better than a constant, below 0 = worse. None where the returns are all alike, or there are
    none: there is nothing to explain, and no number says so.

    >>> explained_variance(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 2.0]]), torch.tensor([[True, True]]))
    0.75
    """
    wanted, found = returns[mask].detach().double(), values[mask].detach().double()
    if not wanted.numel() or bool(wanted.min() == wanted.max()):
        return None
    return float(1 - (wanted - found).var() / wanted.var())
