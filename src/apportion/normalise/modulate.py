"""A sequence-level relative advantage that modulates the credit of steps."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.normalise.groups import group_mean_std


def group_times_step_published(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Compute weight[n] * credit[n, k], weight = the answer's whole credit, centred and scaled in its group.

    As it is published, and with its fault: minus times minus is plus, so the bad steps of a bad answer are rewarded and
    its good ones punished. `group_times_step` is the form to use.
    """
    return _weight(credit, mask, groups, min_std, across) * torch.where(mask, credit, 0)


def group_times_step(
    credit: Float[Tensor, "N K"],
    mask: Bool[Tensor, "N K"],
    groups: Int[Tensor, " N"],
    *,
    min_std: float = 1e-6,
    across: Across = ALONE,
) -> Float[Tensor, "N K"]:
    """Compute |weight[n]| * credit[n, k]: answers that stand out in their group speak louder, and no step changes sign.

    Law: the sign is that of the credit, or 0 where the group's answers are all alike. Identity: for answers with a
    weight of at least 0, `group_times_step_published`.

    >>> grid, mask = torch.tensor([[1.0, -3.0], [1.0, 1.0]]), torch.ones(2, 2, dtype=torch.bool)
    >>> group_times_step(grid, mask, torch.tensor([0, 0])) / 0.5**0.5
    tensor([[ 1., -3.],
            [ 1.,  1.]])
    """
    return _weight(credit, mask, groups, min_std, across).abs() * torch.where(mask, credit, 0)


def _weight(credit: Tensor, mask: Tensor, groups: Tensor, min_std: float, across: Across) -> Float[Tensor, "N 1"]:
    totals = torch.where(mask, credit, 0).sum(1, keepdim=True)
    return group_mean_std(totals, mask.any(1, keepdim=True), groups, min_std=min_std, across=across)
