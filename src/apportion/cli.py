"""The command line: every command is one call of the library. Bad input ends in one line and exit status 2."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from apportion import recipes
from apportion.errors import ApportionError

app = typer.Typer(
    help="Token-level credit in reinforcement learning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

RecipeName = Annotated[str | None, typer.Option("--recipe", help=f"One of {', '.join(recipes.BY_NAME)}.")]


def main() -> None:
    """Run the command line; what the user can mend is said in one line."""
    warnings.showwarning = _print_warning
    sys.path.insert(0, str(Path.cwd()))  # so that `module:function` finds the user's own modules
    try:
        app(standalone_mode=True)
    except (ApportionError, OSError) as error:
        print(f"apportion: {error}", file=sys.stderr)
        sys.exit(2)


def _print_warning(message: Warning | str, *about: Any, **more: Any) -> None:
    print(f"apportion: {message}", file=sys.stderr)


@app.command()
def train(
    recipe: RecipeName = None,
    model: Annotated[str | None, typer.Option(help="`embedded`, a Hugging Face folder, or a GGUF file.")] = None,
    data: Annotated[Path | None, typer.Option(help="JSONL of prompts and answers (GSM8K's own format too).")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of the policy.")] = None,
    seed: Annotated[int | None, typer.Option(help="All chance in a run follows from it.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting: KEY=VALUE, as in the file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: a new one under runs/).")] = None,
    resume: Annotated[Path | None, typer.Option(help="Folder of a run to take up where it stopped.")] = None,
) -> None:
    """Train a policy: sample, judge, apportion, update. With no argument: the embedded model and task."""
    flags = {"recipe": recipe, "model": model, "data": data, "steps": steps, "seed": seed}
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value is not None
    }
    from apportion.train.display import closing_table
    from apportion.train.start import open_run, settings_of, train_run
    from apportion.view.report import write_report

    run, resolved = open_run(settings_of(given, settings or [], config), out, resume)
    try:
        train_run(run, resolved, console)
    except KeyboardInterrupt:
        console.print(Text(f"stopped; to go on: apportion train --resume {run.path}"), soft_wrap=True)
        raise typer.Exit(130) from None
    write_report(run.path)
    console.print(closing_table(run))


@app.command()
def credit(
    file: Annotated[Path, typer.Argument(help="Rollouts that somebody sampled: .jsonl or .parquet.")],
    recipe: Annotated[str, typer.Option(help=f"One of {', '.join(recipes.BY_NAME)}.")],
    out: Annotated[Path, typer.Option(help="Where to write the rollouts with their credit.")],
    split: Annotated[
        str | None, typer.Option(help="Cut steps otherwise: whole, every_token, lines, after:REGEX, marker:ID.")
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="Weigh step rewards and outcome: default, proof, sql, code, chat.")
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help="sum_then_normalise (default), or normalise_then_sum: each reward part by itself."),
    ] = None,
) -> None:
    """Work out the credit of every step and token of a file of rollouts. Needs no model."""
    from apportion.credit_file import credit_file, print_summary, recipe_of

    ledger = credit_file(file, recipe_of(recipe, split=split, mix=mix, combine=combine), out)
    print_summary(ledger, out, console)


@app.command()
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
