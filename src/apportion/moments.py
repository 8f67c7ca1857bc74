"""Mean and spread of what counts, a group at a time, over all processes that share the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across, group_count


@dataclass(frozen=True, eq=False)
class Moments:
    """Of each group: how many entries count, their mean, and the sum of their squared distances from it, in float64.

    Where all entries are equal the mean is that entry, not a rounding of it, and the deviation exactly 0.
    """

    count: Float[Tensor, " G"]
    mean: Float[Tensor, " G"]
    squares: Float[Tensor, " G"]

    @property
    def std(self) -> Float[Tensor, " G"]:
        """Standard deviation of the sample."""
        return (self.squares / (self.count - 1).clamp(min=1)).sqrt()


def moments(
    entries: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], groups: Int[Tensor, " N"], across: Across = ALONE
) -> Moments:
    """Work out the moments of every group, in two passes."""
    size = group_count(groups, across)
    used = torch.where(mask, entries, 0).double()
    highest, lowest = _extremes(used, mask, groups, size, across)
    count = across.sum(_group_sum(mask.double(), groups, size))
    mean = across.sum(_group_sum(used, groups, size)) / count.clamp(min=1)
    mean = torch.where(highest == lowest, highest, mean)
    squares = torch.where(mask, used - mean[groups].unsqueeze(1), 0).square()
    return Moments(count, mean, across.sum(_group_sum(squares, groups, size)))


def divided(
    entries: Float[Tensor, "N K"], std: Float[Tensor, "N 1"], mask: Bool[Tensor, "N K"], min_std: float
) -> Float[Tensor, "N K"]:
    """Divide what counts by its group's deviation; 0 where that is at most `min_std`."""
    spread = mask & (std > min_std)
    return torch.where(spread, entries / torch.where(spread, std, 1).to(entries.dtype), 0)


def _group_sum(entries: Tensor, groups: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=entries.dtype, device=entries.device).index_add(0, groups, entries.sum(1))


def _extremes(entries: Tensor, mask: Tensor, groups: Tensor, size: int, across: Across) -> tuple[Tensor, Tensor]:
    """The highest and the lowest entry of each group; of a group without any, minus and plus infinity."""
    # one more column, so that a row without any has a highest entry too
    sides = (torch.where(mask, side, -torch.inf) for side in (entries, -entries))
    rows = [torch.nn.functional.pad(side, (0, 1), value=-torch.inf).amax(1) for side in sides]
    none = torch.full((size,), -torch.inf, dtype=entries.dtype, device=entries.device)
    highest, lowest = (across.largest(none.scatter_reduce(0, groups, row, "amax")) for row in rows)
    return highest, -lowest
