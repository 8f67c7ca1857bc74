"""Commands that lay runs side by side."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from apportion.cli.console import console

if TYPE_CHECKING:
    from apportion.compare import Comparison


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; others are held to the first.")],
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("compare.html"),
    score: Annotated[str, typer.Option(help="A number of metrics.jsonl: pass_rate, outcome_mean, ...")] = "pass_rate",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and write no page.")] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Lay runs side by side: what they learnt from the same tokens, and in the same time."""
    from apportion.compare import compare as compared
    from apportion.compare.tables import as_dict

    found = compared(runs, score)
    if as_json:
        print(json.dumps(as_dict(found), indent=2))
    else:
        _show_comparison(found, out, open_page=open_page)


def experiment_credit(
    out: Annotated[Path, typer.Option(help="Folder of the runs and of the page; what is there is not made again.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm.")] = 3,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens that each run may generate, values and all.")] = 400_000,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of both arms, as in `train`: KEY=VALUE.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Train with one advantage for the whole answer, and with step credit, from the same tokens; and compare them."""
    from apportion.compare.experiment import run_credit
    from apportion.train.start import settings_of

    found = run_credit(out, seeds, tokens, settings_of({}, settings or [], None), console)
    _show_comparison(found, out / "compare.html", open_page=open_page)


def _show_comparison(found: Comparison, out: Path, *, open_page: bool) -> None:
    from apportion.compare.page import write_page
    from apportion.compare.tables import for_terminal, legend

    write_page(found, out)
    for axis in found.lines:
        console.print(for_terminal(found, axis))
    for line in [*legend(found), "", *found.verdicts]:
        console.print(Text(line), soft_wrap=True)
    console.print(Text(f"written: {out}"), soft_wrap=True)
    if open_page:
        webbrowser.open(out.resolve().as_uri())
