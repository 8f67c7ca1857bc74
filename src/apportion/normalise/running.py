"""Whitening by the credit of the whole run so far, which a single batch cannot throw off its scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.moments import moments


@dataclass(frozen=True)
class RunningMoments:
    """Count, mean and sum of squared distances from it of all credit seen so far; plain numbers, so easy to save.

    Law: after any batches, the moments of all of them laid together; in what order or in how many pieces they came
    does not matter. Source: the pairwise update of Chan, Golub and LeVeque (1979).

    >>> seen = RunningMoments().updated(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2).bool())
    >>> seen.mean, seen.std
    (2.0, 1.4142135623730951)
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def std(self) -> float:
        """Standard deviation of the sample; 0 where nothing was told apart yet."""
        return math.sqrt(self.squares / max(self.count - 1, 1))

    def updated(
        self, credit: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], *, across: Across = ALONE
    ) -> RunningMoments:
        """The moments with one more batch."""
        one_group = torch.zeros(len(credit), dtype=torch.int64, device=credit.device)
        batch = moments(credit, mask, one_group, across)
        if not len(batch.count) or not float(batch.count):
            return self
        count, mean, squares = (float(column) for column in (batch.count, batch.mean, batch.squares))
        total, gap = self.count + count, mean - self.mean
        return RunningMoments(
            count=total,
            mean=self.mean + gap * count / total,
            squares=self.squares + squares + gap**2 * self.count * count / total,
        )

    def whiten(
        self,
        credit: Float[Tensor, "N K"],
        mask: Bool[Tensor, "N K"],
        groups: Int[Tensor, " N"],
        *,
        min_std: float = 1e-6,
    ) -> Float[Tensor, "N K"]:
        """Compute (credit - mean) / std by what was seen so far; 0 while that spreads by at most `min_std`.

        Identity: after one batch, `whiten` of that batch.
        """
        if self.std <= min_std:
            return torch.zeros_like(credit)
        return torch.where(mask, (credit - self.mean) / self.std, 0)
