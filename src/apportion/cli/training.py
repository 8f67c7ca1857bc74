"""Commands that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from apportion import recipes
from apportion.cli.console import console
from apportion.cli.showing import page_of

WHAT, HOW, WHERE = "What is trained", "Every other setting: see `apportion config`", "Where the run is"
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help=f"One of {', '.join(recipes.BY_NAME)}.", rich_help_panel=WHAT)
]


def train(
    recipe: RecipeName = None,
    model: Annotated[
        str | None, typer.Option(help="`embedded`, a Hugging Face folder, or a GGUF file.", rich_help_panel=WHAT)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="JSONL of prompts and answers (GSM8K's own format too).", rich_help_panel=WHAT)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of the policy.", rich_help_panel=WHAT)] = None,
    seed: Annotated[int | None, typer.Option(help="All chance in a run follows from it.", rich_help_panel=WHAT)] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.", rich_help_panel=HOW)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: KEY=VALUE, as in the file.", rich_help_panel=HOW)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run (default: a new one under runs/).", rich_help_panel=WHERE)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a run to take up where it stopped.", rich_help_panel=WHERE)
    ] = None,
) -> None:
    """Train a policy: sample, judge, apportion, update. With no argument: the embedded model and task."""
    flags = {"recipe": recipe, "model": model, "data": data, "steps": steps, "seed": seed}
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value is not None
    }
    from apportion.train.display import closing_table
    from apportion.train.processes import joined, told
    from apportion.train.start import open_run, settings_of, train_run

    across = joined()
    run, resolved = told(lambda: open_run(settings_of(given, settings or [], config), out, resume), across)
    try:
        finished = train_run(run, resolved, console if across.rank == 0 else Console(quiet=True), across)
    except KeyboardInterrupt:
        console.print(Text(f"stopped; to go on: apportion train --resume {run.path}"), soft_wrap=True)
        raise typer.Exit(130) from None
    if across.rank == 0:
        page_of(run.path)
        console.print(closing_table(run))
        if not finished:
            console.print(Text(f"asked to stop; to go on: apportion train --resume {run.path}"), soft_wrap=True)


def config(
    recipe: Annotated[str, typer.Option(help=f"One of {', '.join(recipes.BY_NAME)}.")] = "grpo",
    model: Annotated[str | None, typer.Option(help="Defaults for this model: `embedded` has its own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of printing.")] = None,
) -> None:
    """Write every setting of `train` with its default and its meaning, as TOML: edit it, then `train --config`."""
    from apportion.files import write_atomically
    from apportion.train.config import resolve, to_toml

    text = to_toml(resolve({"recipe": recipe} | ({"model": model} if model else {})))
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())
