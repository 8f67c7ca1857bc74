"""The command line: every command is one call of the library. Bad input ends in one line and exit status 2."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from apportion.cli import comparing, crediting, judging, showing, training
from apportion.errors import ApportionError

COMMANDS = (
    *(training.train, training.config),
    *(crediting.credit, crediting.value),
    *(judging.lint, judging.audit, judging.doctor),
    *(comparing.compare,),
    *(showing.view, showing.explain),
)
app = typer.Typer(
    help="Token-level credit in reinforcement learning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command()(command)

experiment = typer.Typer(help="Small experiments, from training to the page that shows what came out.")
experiment.command("credit")(comparing.experiment_credit)
app.add_typer(experiment, name="experiment")


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
