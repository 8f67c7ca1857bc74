"""Commands that show things to people."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from apportion import recipes
from apportion.cli.console import console
from apportion.errors import InputError


def explain(
    out: Annotated[Path | None, typer.Option(help="Write the walk as an HTML page instead of printing it.")] = None,
) -> None:
    """Walk through one answer: policy, value, advantage, credit, every number worked out anew."""
    from apportion.explain import explain_example, explain_page
    from apportion.files import write_atomically

    if out is None:
        explain_example(console)
    else:
        write_atomically(out, explain_page().encode())
        console.print(Text(f"written: {out}"), soft_wrap=True)


def view(
    source: Annotated[Path, typer.Argument(metavar="FILE_OR_RUN", help="Any file of rollouts, or a run's folder.")],
    out: Annotated[Path | None, typer.Option(help="The page (default: beside the file, or RUN/report.html).")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    recipe: Annotated[
        str | None,
        typer.Option(help=f"Work out the credit of a file anew: one of {', '.join(recipes.BY_NAME)}."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="With --recipe: cut steps otherwise, as in `apportion credit`.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Format of the file, as in `apportion credit` (default: seen by its fields).")
    ] = None,
) -> None:
    """Show rollouts token by token, coloured by credit: one HTML page that needs nothing else."""
    from apportion.credit_file import recipe_of

    if split is not None and recipe is None:
        raise InputError("--split says how a recipe cuts steps; give --recipe too")
    chosen = None if recipe is None else recipe_of(recipe, split=split)
    page = page_of(source, out, recipe=chosen, format=format)
    console.print(Text(f"written: {page}"), soft_wrap=True)
    if show:
        webbrowser.open(page.resolve().as_uri())


def page_of(source: Path, out: Path | None = None, **how: Any) -> Path:
    """The page of a file or a run; that of a run has the doctor's findings."""
    from apportion.view.report import write_page

    return write_page(source, out, findings=_findings(source) if source.is_dir() else None, **how)


def _findings(run: Path) -> list[dict[str, Any]] | None:
    """What the doctor says of a run, in the words of a page; None for a run that it cannot read."""
    from apportion.doctor import CHECKS, diagnose

    checks = {check.code: check for check in CHECKS}
    try:
        return [_told(finding, checks[finding.code]) for finding in diagnose(run)]
    except InputError:
        return None


def _told(finding: Any, check: Any) -> dict[str, Any]:
    where = f" (steps {finding.steps[0]} to {finding.steps[1]})" if finding.steps else ""
    title = check.name.replace("-", " ").capitalize()
    said = {"code": finding.code, "level": finding.level, "evidence": f"{finding.said}{where}"}
    return said | {"title": title, "remedy": check.remedy}
