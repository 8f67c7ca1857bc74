"""The desk on which columns are laid out: the shape that they share, and those that hold one number a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.lint import names
from apportion.lint.batch import Batch
from apportion.lint.runs import begins
from apportion.lint.tensors import Column


@dataclass
class Desk:
    """Columns of tokens on their way onto one grid [B, T]. The action mask, where it came, says what B and T are."""

    columns: Mapping[str, Column]
    notes: list[str] = field(default_factory=list)
    by_row: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        widest = max(self.columns, key=lambda name: self.columns[name].numbers.dim())
        self.reference = "action_mask" if "action_mask" in self.columns else widest
        numbers = self.columns[self.reference].numbers
        if numbers.dim() not in (1, 2) or 0 in numbers.shape:
            shape = tuple(numbers.shape)
            raise InputError(f"{self.reference} must be [B, T] or [T] and hold a token, got shape {shape}")
        self.shape = (1, numbers.shape[0]) if numbers.dim() == 1 else (numbers.shape[0], numbers.shape[1])
        self.lengths = self._lengths_of_rows()
        self.ragged = len(set(self.lengths)) > 1
        if numbers.dim() == 1:
            self.notes.append("[T] was taken for one row")
        if self.ragged:
            self.notes.append(f"rows of mixed length were padded to {self.shape[1]}")

    def laid(self, name: str) -> Tensor:
        """A column on the grid. Raises InputError if it does not fit."""
        numbers, (rows, width) = self.columns[name].numbers, self.shape
        if numbers.shape == (rows, width):
            return numbers
        if rows == 1 and numbers.shape == (width,):
            return numbers.unsqueeze(0)
        if name in names.ONE_A_ROW and numbers.shape in ((rows,), (rows, 1)):
            self.by_row[name] = numbers.reshape(rows, 1)
            return self.by_row[name].expand(rows, width)
        wanted = " or one number a row" if name in names.ONE_A_ROW else ""
        reference = tuple(self.columns[self.reference].numbers.shape)
        raise InputError(
            f"{name} has shape {tuple(numbers.shape)}, {self.reference} has {reference}; expected the same{wanted}"
        )

    def within_rows(self) -> Tensor:
        """True where a token is, as far as the lengths of the rows tell."""
        lengths = torch.tensor(self.lengths if self.ragged else [self.shape[1]] * self.shape[0])
        return torch.arange(self.shape[1]) < lengths.unsqueeze(1)

    def spread_over_rows(self, batch: Batch) -> Batch:
        """Put a row's reward on its last sampled token, and its other numbers on all of them."""
        grids = dict(batch.grids)
        for name, number in self.by_row.items():
            places = last_of_rows(batch) if name == "rewards" else batch.sampled
            grids[name] = torch.where(places, number, 0)
            where = "the row's last sampled token" if name == "rewards" else "every sampled token"
            self.notes.append(f"{name} came one a row and were put on {where}")
        return replace(batch, grids=grids, notes=(*batch.notes, *self.notes))

    def _lengths_of_rows(self) -> tuple[int, ...]:
        """Tokens of each row, where columns came as lists of lists; all must agree."""
        listed = {
            name: lengths
            for name, column in self.columns.items()
            if (lengths := column.lengths) is not None and not (name in names.ONE_A_ROW and set(lengths) == {1})
        }
        first = next(iter(listed), "")
        for name, lengths in listed.items():
            # a different count of rows is refused as another shape
            for row, (came, wanted) in enumerate(zip(lengths, listed[first], strict=False)):
                if came != wanted:
                    raise InputError(f"row {row}: {name} has {came} entries, {first} has {wanted}")
        return listed.get(first, ())


def last_of_rows(batch: Batch) -> Tensor:
    """True at each row's last sampled token, or its last token where the policy sampled none."""
    owner, rows = batch.rollout_of[batch.valid], batch.row_of[batch.valid]
    rollouts = torch.bincount(rows[begins(owner)])
    if bool((rollouts > 1).any()):
        row = int((rollouts > 1).nonzero()[0])
        raise InputError(f"row {row} holds several rollouts, so one reward a row says too little")
    candidates = torch.where(batch.sampled.any(1, keepdim=True), batch.sampled, batch.valid)
    return candidates & (candidates.flip(1).cumsum(1).flip(1) == 1)
