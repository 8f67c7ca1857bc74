"""The worked example as a page: the sections of the walk as headings, paragraphs and tables."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from apportion.explain.example import Example
from apportion.explain.walk import Section, sections

SHADES = 5


@dataclass(frozen=True)
class Cell:
    """An entry of a table. shade: of blame below 0, of credit above; 0 = an entry without a sign."""

    text: str
    shade: int = 0


@dataclass(frozen=True)
class Part:
    """A part of a section: pieces of prose, each bold or not, or a table with its heads and rows."""

    kind: str
    pieces: tuple[tuple[str, bool], ...] = ()
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[bool, tuple[Cell, ...]], ...] = ()


def explain_page() -> str:
    """Give the walk as one HTML page."""
    import jinja2
    from markupsafe import Markup

    style = _text("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    walk = [(section, _parts(section)) for section in sections(Example.compute())]
    template = environment.from_string(_text("page.html"))
    return template.render(walk=walk, style=Markup(style), style_hash=f"sha256-{digest}")


def _parts(section: Section) -> list[Part]:
    return [_part(body) for body in section.body]


def _part(body: RenderableType) -> Part:
    if isinstance(body, str):
        return Part("prose", _pieces(Text.from_markup(body)))
    if isinstance(body, Padding):
        return Part("formula", ((str(body.renderable), False),))
    if isinstance(body, Table):
        return _table(body)
    return Part("line", ((str(body), False),))


def _pieces(text: Text) -> tuple[tuple[str, bool], ...]:
    """The stretches of a text, each with whether it is bold."""
    bold = [any(span.start <= n < span.end for span in text.spans) for n in range(len(text.plain))]
    cuts = [0, *(n for n in range(1, len(bold)) if bold[n] != bold[n - 1]), len(bold)]
    return tuple((text.plain[a:b], bold[a]) for a, b in pairwise(cuts))


def _table(table: Table) -> Part:
    heads = tuple(str(column.header) for column in table.columns)
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    largest = max((abs(x) for column in columns for cell in column if (x := _signed(cell)) is not None), default=0.0)
    rows = tuple(
        (bool(row.style), tuple(Cell(cell, _shade(cell, largest)) for cell in cells))
        for row, cells in zip(table.rows, zip(*columns, strict=True), strict=True)
    )
    return Part("table", heads=heads, rows=rows)


def _signed(cell: str) -> float | None:
    """The number in a cell that shows a sign."""
    try:
        return float(cell) if cell[:1] in ("+", "-") else None
    except ValueError:
        return None


def _shade(cell: str, largest: float) -> int:
    signed = _signed(cell)
    return 0 if not signed else math.ceil(SHADES * abs(signed) / largest) * (1 if signed > 0 else -1)


def _text(name: str) -> str:
    return resources.files("apportion.explain").joinpath(name).read_text(encoding="utf-8")
