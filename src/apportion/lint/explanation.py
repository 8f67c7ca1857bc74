"""Why credit is what it is: the view of the batch, right or known to be wrong, that gives the numbers of a column."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.lint import faults, rescaling
from apportion.lint.batch import Batch
from apportion.lint.faults import Fault
from apportion.lint.rescaling import Rescaling, Samples
from apportion.lint.view import credit_of, right

FEW = 4
"""Rows that are looked at before a fault is worked out on the whole batch."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """A column, and what gives its numbers: fault None = the right view; rescaling None = nothing that is known.

    expected: what the column should hold; off: counted places where it holds something else; largest: by how much.
    """

    column: str
    fault: Fault | None
    rescaling: Rescaling | None
    expected: Float[Tensor, "B T"]
    off: Bool[Tensor, "B T"]
    largest: float

    @property
    def found(self) -> bool:
        return self.rescaling is not None

    def broken_codes(self, batch: Batch) -> tuple[str, ...]:
        return () if self.fault is None else self.fault.breaks(batch)


@dataclass(frozen=True, eq=False)
class TokenCredit:
    """The columns of credit of a batch, each explained once."""

    batch: Batch

    @cached_property
    def explanations(self) -> tuple[Explanation, ...]:
        return tuple(self._explain(column) for column in ("advantages", "returns") if self.batch.has(column))

    def of(self, column: str) -> Explanation | None:
        return next((found for found in self.explanations if found.column == column), None)

    def _explain(self, column: str) -> Explanation:
        """The first view that gives the column's numbers, the right one before all others.

        A factor or line that nothing accounts for comes last: where credit is much alike, a leak may look like one.
        """
        for find in (rescaling.recognised, rescaling.fitted):
            for fault in chain((None,), self._plausible(column)):
                found = find(self._samples(self.batch, column, fault))
                if found is not None and (column == "advantages" or found.kind == "none"):
                    return self._explained(column, fault, found)
        return self._explained(column, None, None)

    def _plausible(self, column: str) -> Iterator[Fault]:
        """The faults that a few rows do not rule out: those with the most turns, where most can go wrong."""
        turns = (self.batch.turn_ends | self.batch.rollout_ends).sum(1)
        few = self.batch.of_rows(turns.topk(min(FEW, len(turns))).indices.sort().values)
        for fault in faults.possible(self.batch):
            if rescaling.plausible(self._samples(few, column, fault)):
                yield fault

    def _samples(self, batch: Batch, column: str, fault: Fault | None) -> Samples:
        view = right(batch) if fault is None else fault.view(batch)
        came = batch.grids[column] - (right(batch).values if column == "returns" else 0)
        stored = batch.stored("rewards", "values", column)
        return Samples(credit_of(view), came, batch.counted, batch.rollout_ends, batch.valid, self._tolerance, stored)

    @cached_property
    def _tolerance(self) -> float:
        view = right(self.batch)
        rewards, values = (torch.where(view.mask, grid, 0).abs() for grid in (view.rewards, view.values))
        scale, terms = float(rewards.sum(1).max()) + float(values.max()), int(view.mask.sum(1).max())
        return self.batch.allowed("rewards", "values", "advantages", "returns", scale=scale, terms=terms)

    def _explained(self, column: str, fault: Fault | None, found: Rescaling | None) -> Explanation:
        samples = self._samples(self.batch, column, None)
        should = found or Rescaling("none")
        if should.kind in ("whitened", "centred") and (fault is not None or not should.is_honest):
            should = rescaling.honest(samples, should.kind)
        difference = torch.where(samples.counted, samples.came - should.of(samples.raw), 0)
        apart = torch.nan_to_num(difference.abs(), nan=math.inf)
        largest = float(apart.max())
        off = apart > samples.allowed(1 / should.spread)
        if not bool(off.any()):  # what is recognised is judged more closely than what is fitted
            off = apart == largest
        expected = should.of(samples.raw) + (right(self.batch).values if column == "returns" else 0)
        return Explanation(column, fault, found, expected, off, largest)
