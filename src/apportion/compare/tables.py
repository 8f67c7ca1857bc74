"""A comparison as tables: for the terminal, for Markdown, for a page, and as one JSON document."""

from __future__ import annotations

from typing import Any, NamedTuple

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


def cells(comparison: Comparison, axis: str) -> Cells:
    """The arms over one axis, an arm a row."""
    upto, unit = comparison.upto[axis], UNITS[axis]
    header = ["arm", "seeds", *(f"at {share * upto:,.0f}{unit}" for share in SHARES), "mean over it", "lead"]
    header += ["held out"] if axis == "tokens" else []
    return Cells(TITLES[axis], header, [_row(comparison, axis, n) for n in range(len(comparison.arms))])


def _row(comparison: Comparison, axis: str, n: int) -> list[str]:
    line, held_out = comparison.lines[axis][n], comparison.held_out[n]
    found = [line.arm.name, str(len(line.arm.runs)), *map(str, line.at), str(line.mean)]
    found.append("" if line.lead is None else line.lead.points)
    return [*found, "" if held_out is None else str(held_out)] if axis == "tokens" else found


def for_terminal(table: Cells) -> Table:
    made = Table(title=Text(table.title), title_justify="left")
    for n, name in enumerate(table.header):
        made.add_column(name, justify="right" if n else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made


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
