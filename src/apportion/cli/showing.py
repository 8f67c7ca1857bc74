"""Commands that show things to people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from apportion.cli.console import console


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
