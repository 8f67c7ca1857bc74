"""Findings: what a check says of a batch, and where it first goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "broken", "not checkable"]


@dataclass(frozen=True)
class Place:
    """A place in the grid [B, T], with the number that came there and, where one can be said, the number expected."""

    row: int
    position: int
    column: str
    came: float
    expected: float | None = None

    def __str__(self) -> str:
        expected = "" if self.expected is None else f", expected {self.expected:.6g}"
        return f"row {self.row}, position {self.position}: {self.column} is {self.came:.6g}{expected}"


@dataclass(frozen=True)
class Finding:
    """What one check says of one batch.

    said: the evidence, in a sentence; place: the first offending place of a broken rule, where it has one.
    pattern: the name of a known fault whose numbers these are, "" where none is known.
    missing: what the batch lacks for the check to be possible.
    """

    verdict: Verdict
    said: str
    place: Place | None = None
    pattern: str = ""
    missing: tuple[str, ...] = ()
    code: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.verdict}: {self.said}"


def holds(said: str) -> Finding:
    """The rule holds on this batch."""
    return Finding("holds", said)


def broken(said: str, place: Place | None = None, pattern: str = "") -> Finding:
    """The rule is broken: in the words of the fault, and then of the place."""
    parts = (pattern, said, str(place or ""))
    return Finding("broken", "; ".join(part for part in parts if part), place, pattern)


def not_checkable(said: str, missing: tuple[str, ...] = ()) -> Finding:
    """The batch says too little, or something that must be mended first."""
    return Finding("not checkable", said, missing=missing)
