"""Scores that came with the rollouts: one a step or one a sampled token, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Row = tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of all rollouts, laid end to end.

    counts: how many belong to each rollout; -1 = it came without any, which is not a score of 0.
    """

    flat: Float[Tensor, " S"]
    counts: Int[Tensor, " N"]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Scores:
        """From one tuple of scores a rollout, None where it has none.

        >>> Scores.of([(0.5, 1.0), None]).counts
        tensor([ 2, -1])
        """
        flat = list(chain.from_iterable(row for row in rows if row is not None))
        numbers = [float("nan") if score is None else float(score) for score in flat]
        counts = [-1 if row is None else len(row) for row in rows]
        return cls(torch.tensor(numbers, dtype=torch.float64), torch.tensor(counts, dtype=torch.int64))

    @property
    def came(self) -> Bool[Tensor, " N"]:
        """True where a rollout came with scores."""
        return self.counts >= 0

    def rows(self) -> list[Row]:
        """The scores of each rollout by itself, as `of` takes them."""
        flat, ends = self.flat.tolist(), self.counts.clamp(min=0).cumsum(0).tolist()
        spans = zip(ends, self.counts.tolist(), strict=True)
        return [None if count < 0 else tuple(flat[end - count : end]) for end, count in spans]

    def to(self, device: torch.device | str) -> Scores:
        return Scores(self.flat.to(device), self.counts.to(device))
