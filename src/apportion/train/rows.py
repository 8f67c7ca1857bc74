"""Rollouts as a loss takes them, one a row: some of them, and cut into parts for every process."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Some = TypeVar("Some", bound="Rows")


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
