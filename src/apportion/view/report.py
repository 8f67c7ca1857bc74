"""One page from a file of rollouts or the folder of a run.

The page is `page/page.html` filled with what there is; the scripts beside it draw that, with `page.css`. All of it
goes into one file that asks nothing of any network. Text of models enters the page as JSON only, and the scripts put it
there as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.files import Row, write_atomically
from apportion.ledger import Recipe
from apportion.view.answers import number
from apportion.view.run import POINTS, run_content, spread_over
from apportion.view.shelf import Shelf, shown
from apportion.view.source import read_answers, step_curves, summary

SCRIPTS = ("tools", "curves", "tokens", "readout", "answers", "list", "main")
"""The scripts of the page, in the order in which they are put together."""
FINDING = ("code", "level", "title", "evidence", "remedy")
LEVELS = ("error", "warning", "note")


def write_page(
    source: Path,
    out: Path | None = None,
    *,
    recipe: Recipe | None = None,
    format: str | None = None,
    findings: Sequence[Row] | None = None,
) -> Path:
    """Write the page of a file of rollouts, or of the folder of a run, and give its path.

    out: left out, RUN/report.html for a run, and for a file its name with the ending .html.
    recipe: works out the credit of a file anew; None = the credit that the file holds, if any.
    format: one of `files.FORMATS`; None = seen by the fields of the first row.
    findings: what a doctor says of it, each with `code`, `level`, `title`, `evidence`, `remedy`; None = none was asked.
    Raises InputError for what does not parse, and for a recipe or a format that was given for a run.
    """
    if source.is_dir() and (recipe is not None or format is not None):
        raise InputError(f"{source}: the ledgers of a run hold its credit; a recipe or a format is for files alone")
    if source.is_dir():
        content, shelves = run_content(source)
        out = out or source / "report.html"
    else:
        content, shelves = _file_content(source, recipe, format)
        out = out or source.with_suffix(".html")
    if out.exists() and out.samefile(source):
        raise InputError(f"{out}: is what is shown; give another --out")
    content["findings"] = None if findings is None else [_finding(found) for found in findings]
    page = _render({"run": None, "file": None} | content, shelves)
    write_atomically(out, page.replace("\0", "\ufffd").encode("utf-8", errors="replace"))
    return out


def _file_content(source: Path, recipe: Recipe | None, format: str | None) -> tuple[Row, list[Shelf]]:
    answers = read_answers(source, recipe=recipe, format=format)
    curves = step_curves(source)
    file = {"name": source.name, "recipe": None if recipe is None else recipe.name} | summary(answers)
    kept = spread_over(range(len(curves.get("step", ()))), POINTS)
    return {
        "file": file,
        "curves": {name: [curve[n] for n in kept] for name, curve in curves.items()} or {"step": []},
        "steps_total": len(curves.get("step", ())),
        "ledgers_total": 1,
    }, [Shelf(None, answers)]


def _finding(given: Row) -> dict[str, str]:
    """The entries of a finding as text; a level that is not known counts as a note."""
    found = {name: _said(given.get(name)) for name in FINDING}
    return found | {"level": found["level"] if found["level"] in LEVELS else "note"}


def _said(entry: Any) -> str:
    """Evidence may come as text, or as names with figures."""
    if isinstance(entry, dict):
        return ", ".join(f"{name} {_said(figure)}" for name, figure in entry.items())
    if isinstance(entry, list | tuple):
        return ", ".join(map(_said, entry))
    short = number(entry) if isinstance(entry, float) else None
    return "" if entry is None else str(entry if short is None else short)


def _render(content: Row, shelves: Sequence[Shelf]) -> str:
    import jinja2
    from markupsafe import Markup

    held = shown(shelves)
    data = {
        "curves": content.pop("curves"),
        "steps_total": content.pop("steps_total"),
        "ledgers_total": content.pop("ledgers_total"),
        "limits": held.limits,
        "shelves": held.index,
    }
    style = _text("uplot/uPlot.min.css") + _text("page/page.css")
    plotter = f"/*\n{_text('uplot/LICENSE')}\n*/\n{_text('uplot/uPlot.iife.min.js')}"
    script = '"use strict";\n{\n' + "".join(_text(f"page/{name}.js") for name in SCRIPTS) + "}\n"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(_text("page/page.html")).render(
        content,
        data=data,
        bodies=held.bodies,
        style=Markup(style),  # ours, and `_hash` is what the page lets in
        plotter=Markup(plotter),
        script=Markup(script),
        style_hash=_hash(style),
        script_hashes=[_hash(plotter), _hash(script)],
    )


def _text(name: str) -> str:
    return resources.files("apportion.view").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source that a content security policy names to let in this very text, and nothing else."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
