"""A comparison as tables: for the terminal, for Markdown, for a page, and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from apportion.compare.comparison import SHARES, Comparison, Line


class Cells(NamedTuple):
    """A table before it is laid out."""

    title: str
    header: list[str]
    rows: list[list[str]]


TITLES = {"tokens": "At equal tokens", "seconds": "At equal time"}
UNITS = {"tokens": "", "seconds": " s"}
LEFT_OUT = (0.25, 0.75)
"""Shares of an axis that a narrow table does without."""


def cells(comparison: Comparison, axis: str) -> Cells:
    """The arms over one axis, an arm a row."""
    header = ["arm", "seeds", *_at(comparison, axis, SHARES), "mean over it", "lead"]
    header += ["held out"] if axis == "tokens" else []
    return Cells(TITLES[axis], header, [_row(comparison, axis, n) for n in range(len(comparison.arms))])


def _at(comparison: Comparison, axis: str, shares: Sequence[float]) -> list[str]:
    return [f"at {share * comparison.upto[axis]:,.0f}{UNITS[axis]}" for share in shares]


def _row(comparison: Comparison, axis: str, n: int) -> list[str]:
    line, held_out = comparison.lines[axis][n], comparison.held_out[n]
    found = [line.arm.name, str(len(line.arm.runs)), *map(str, line.at), str(line.mean)]
    found.append("" if line.lead is None else line.lead.points)
    return [*found, "" if held_out is None else str(held_out)] if axis == "tokens" else found


def for_terminal(comparison: Comparison, axis: str) -> Table:
    """What fits a narrow terminal: arms by their letter (see `legend`), half way, at the end, and over all of it."""
    whole = cells(comparison, axis)
    chosen = [
        n for n, name in enumerate(whole.header) if name not in {"arm", "seeds", *_at(comparison, axis, LEFT_OUT)}
    ]
    made = Table(title=Text(f"{whole.title}, in %"), title_justify="left", box=box.SIMPLE_HEAD)
    made.add_column("arm")
    for n in chosen:
        made.add_column(whole.header[n], justify="right", no_wrap=True)
    for letter, row in zip(ascii_uppercase, whole.rows, strict=False):
        made.add_row(letter, *(row[n] for n in chosen))
    return made


def legend(comparison: Comparison) -> list[str]:
    """Which arm has which letter."""
    return [
        f"{letter}  {arm.name} ({len(arm.runs)} seed{'s' * (len(arm.runs) > 1)})"
        for letter, arm in zip(ascii_uppercase, comparison.arms, strict=False)
    ]


def as_markdown(table: Cells) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """All figures, unrounded."""
    return {
        "score": comparison.score,
        "upto": comparison.upto,
        "verdicts": comparison.verdicts,
        "arms": [
            {
                "name": arm.name,
                "runs": [str(run.folder) for run in arm.runs],
                "held_out": None if (held := comparison.held_out[n]) is None else held._asdict(),
                **{axis: _figures(lines[n]) for axis, lines in comparison.lines.items()},
            }
            for n, arm in enumerate(comparison.arms)
        ],
    }


def _figures(line: Line) -> dict[str, Any]:
    at = {str(share): found._asdict() for share, found in zip(SHARES, line.at, strict=True)}
    return {"at": at, "mean": line.mean._asdict(), "lead": None if line.lead is None else line.lead._asdict()}
