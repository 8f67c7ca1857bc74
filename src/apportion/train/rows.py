"""Rollouts as a loss takes them, one a row: some of them, and cut into parts for every process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Some = TypeVar("Some", bound="Rows")
COUNTED = ("rollout_of", "groups")
"""Columns that number rollouts or groups within a batch."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What all losses need; each adds columns [B] or [B, T] of its own.

    valid: tokens that are no padding, which stands on the right. weights: what each token's loss weighs.
    """

    tokens: Int[Tensor, "B T"]
    valid: Bool[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    weights: Float[Tensor, "B T"]

    @property
    def lengths(self) -> Int[Tensor, " B"]:
        return self.valid.sum(1)

    def take(self: Some, rows: Tensor) -> Some:
        """Some rows, cut to the longest of them."""
        width = int(self.lengths[rows].max())
        columns = {f.name: getattr(self, f.name)[rows] for f in fields(self)}
        return type(self)(**{name: grid[:, :width] if grid.ndim > 1 else grid for name, grid in columns.items()})

    def parts(self: Some, order: Int[Tensor, " R"], size: int, ranks: int) -> list[Some]:
        """These rows in this order, in parts of at most `size`: as many parts for every one of `ranks`.

        Part n is for rank n % ranks. One without a row is a row whose tokens weigh nothing.
        """
        count = max(1, math.ceil(len(order) / size / ranks)) * ranks
        return [self.take(part) if len(part) else self._weightless() for part in order.tensor_split(count)]

    def _weightless(self: Some) -> Some:
        shortest = self.take(self.lengths.argmin().unsqueeze(0))
        return replace(shortest, weights=torch.zeros_like(shortest.weights))


def stacked(batches: Sequence[Some]) -> Some:
    """All their rows under each other, padded on the right; no two batches share a rollout or a group."""
    width = max(batch.tokens.shape[1] for batch in batches)
    columns: dict[str, Tensor] = {}
    for name in (f.name for f in fields(batches[0])):
        grids = [getattr(batch, name) for batch in batches]
        if name in COUNTED:
            counts = torch.tensor([0, *(int(grid.max()) + 1 for grid in grids[:-1])]).cumsum(0).tolist()
            grids = [grid + before for grid, before in zip(grids, counts, strict=True)]
        if grids[0].ndim > 1:
            grids = [functional.pad(grid, (0, width - grid.shape[1])) for grid in grids]
        columns[name] = torch.cat(grids)
    return type(batches[0])(**columns)
