"""An audit as a table, as a document, and in the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion.audit.judge import FIGURES, Audit, Figure, Judged
from apportion.audit.picture import picture
from apportion.audit.verdict import verdict
from apportion.errors import InputError
from apportion.files import write_atomically

HEADS = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "hit_1": "key step first, %",
    "hit_3": "in first three, %",
    "key_share": "variance on key, %",
    "idle_share": "weight on idle, %",
    "residual": "residual",
    "mc": "agrees with MC",
}
IN_PERCENT = frozenset({"hit_1", "hit_3", "key_share", "idle_share"})
ORDER = ("hit_1", "pearson", "hit_3", "spearman", "key_share", "idle_share", "residual", "mc")
"""Columns in the terminal."""
WIDE = 190
NOTHING = "–"


def as_document(audit: Audit) -> dict[str, Any]:
    """Everything, in plain values; null for a figure that says nothing."""
    found: dict[str, Any] = _plain(asdict(audit) | {"verdict": verdict(audit), "figures": FIGURES})
    return found


def markdown(audit: Audit) -> str:
    """The tables: figures with their intervals, differences to the first method, scores against continuations."""
    parts = [_headline(audit), _pipes(["method", *HEADS.values(), "tokens an answer"], _rows(audit))]
    differences = _difference_rows(audit)
    if differences:
        head = [f"less {audit.judged[0].name}", *HEADS.values()]
        parts.append(_pipes(head, differences))
    gaps = _gap_rows(audit)
    if gaps:
        parts.append(_pipes(["scores before steps, against continuations", "bias", "root mean square"], gaps))
    parts.append("\n".join(f"- {said}" for said in verdict(audit)))
    return "\n\n".join(parts) + "\n"


def write(audit: Audit, path: Path) -> None:
    """Write the plot (.svg), the tables (.md) or the document (.json). Raises InputError for another ending."""
    refuse_target(path)
    write_atomically(path, _WRITERS[path.suffix](audit).encode())


def refuse_target(path: Path) -> None:
    """Say what is wrong with a target before anything is worked out."""
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: the name must end in .svg (plot), .md (tables) or .json, which says what to write")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")


def as_json(audit: Audit) -> str:
    return json.dumps(as_document(audit), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


_WRITERS = {".svg": picture, ".md": markdown, ".json": as_json}


def show(audit: Audit, console: Console) -> None:
    """Print the figures and the verdict; in a narrow terminal intervals stand behind the first two alone."""
    wide = console.width >= WIDE
    table = Table(caption=None if wide else "all intervals and differences: --out FILE.md")
    table.add_column("method", no_wrap=True)
    for head in (*(HEADS[figure] for figure in ORDER), "tokens"):
        table.add_column(head, justify="right")
    for one in audit.judged:
        cells = [cell(figure, one.figures[figure], bare=not wide and figure not in ORDER[:2]) for figure in ORDER]
        table.add_row(*map(Text, [_name(one), *cells, f"{one.tokens:,.0f}"]))
    console.print(Text(_headline(audit)))
    console.print(table)
    for said in verdict(audit):
        console.print(Text(f"- {said}"))


def _headline(audit: Audit) -> str:
    chance = ", ".join(f"{100 * audit.by_chance[f'hit_{at}']:.0f} % {words}" for at, words in _FIRST)
    return f"{audit.about}. {audit.lost} of {audit.answers} answers lost, {audit.steps:,} steps; by chance {chance}."


_FIRST = ((1, "have the key step first"), (3, "in the first three"))


def _rows(audit: Audit) -> list[list[str]]:
    return [
        [_name(one), *(cell(figure, one.figures[figure]) for figure in HEADS), f"{one.tokens:,.0f}"]
        for one in audit.judged
    ]


def _difference_rows(audit: Audit) -> list[list[str]]:
    return [
        [one.name, *(cell(figure, one.less_first[figure], sign=True) for figure in HEADS)]
        for one in audit.judged
        if one.less_first is not None
    ]


def _gap_rows(audit: Audit) -> list[list[str]]:
    gaps = {one.source: one.gap for one in audit.judged if one.source is not None and one.gap is not None}
    return [[source, f"{gap.bias:+.3f}", f"{gap.rms:.3f}"] for source, gap in gaps.items()]


def cell(figure: str, found: Figure, *, sign: bool = False, bare: bool = False) -> str:
    """A figure and its interval: `71 [63, 78]`, or `0.52 [0.41, 0.60]`; bare, `71`."""
    if not found.told:
        return NOTHING
    scale, digits = (100, 0) if figure in IN_PERCENT else (1, 2)
    value, low, high = (f"{_flat(scale * number, digits):{'+' if sign else ''}.{digits}f}" for number in _three(found))
    return value if bare else f"{value} [{low}, {high}]"


def _three(found: Figure) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def _flat(number: float, digits: int) -> float:
    """Rounded, and never -0."""
    return round(number, digits) + 0.0


def _name(one: Judged) -> str:
    shown = one.name if one.source is None or "@" in one.name else f"{one.name}@{one.source}"
    return f"{shown} *" if one.knows else shown


def _pipes(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _plain(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {name: _plain(value) for name, value in entry.items()}
    if isinstance(entry, list | tuple):
        return [_plain(value) for value in entry]
    return None if isinstance(entry, float) and not isfinite(entry) else entry
