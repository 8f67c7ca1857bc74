"""What a person sees while a run goes on, and at its end."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from apportion.train.config import TrainConfig
from apportion.train.figures import PassRate
from apportion.train.run_folder import RunFolder

LINES = 10
"""Lines printed over a run where the output is no terminal."""


class Display:
    """A live bar in a terminal; a line every so often in a file or pipe."""

    def __init__(self, console: Console, config: TrainConfig, first_step: int = 0) -> None:
        self._console = console
        self._steps = config.steps
        self._every = max(1, config.steps // LINES)
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=8),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}"),
            console=console,
            speed_estimate_period=3600,  # a step may take minutes
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("train", total=config.steps, completed=first_step, figures="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def evaluated(self, when: str, rate: PassRate) -> None:
        if rate.scored:
            self._console.print(f"held-out pass rate {when}: {rate}", highlight=False)

    def stepped(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None:
        done = metrics["step"] + 1
        figures = (
            f"pass {_number(metrics['pass_rate'], '.0%')} |A| {_number(metrics['mean_abs_advantage'], '.2f')} "
            f"KL {_number(metrics['kl'], '.3f')} entropy {_number(metrics['entropy'], '.2f')} "
            f"{timings['tokens_per_second']:,.0f} tok/s"
        )
        self._progress.update(self._task, completed=done, figures=figures)
        if not self._console.is_terminal and (done % self._every == 0 or done == self._steps):
            self._console.print(f"step {done}/{self._steps}  {figures}", highlight=False, soft_wrap=True)


def closing_table(run: RunFolder) -> Table:
    """Pass rate before and after, where the time went, and where the report is."""
    table = Table(title=Text(str(run.path)), show_header=False, title_justify="left")
    for when, found in run.evaluations().items():
        if found["scored"]:
            table.add_row(f"pass rate {when}", str(PassRate(found["passed"], found["scored"])))
    timings = run.rows("timings.jsonl")
    total = sum(row["seconds"] for row in timings)
    phases = {key.removeprefix("seconds_") for row in timings for key in row if key.startswith("seconds_")}
    spent = {name: sum(row.get(f"seconds_{name}", 0.0) for row in timings) for name in phases}
    if total:
        ordered = [(name, seconds / total) for name, seconds in sorted(spent.items(), key=_by_size)]
        shares = "  ".join(f"{name} {share:.0%}" for name, share in ordered if share >= 0.005)
        table.add_row("time", f"{total:.0f} s in {len(timings)} steps: {shares}")
    metrics = run.rows("metrics.jsonl")
    if metrics:
        group = run.config().group
        table.add_row(f"pass@{group}", f"{_number(metrics[-1]['pass_at_group'], '.1%')} of the last step's prompts")
        table.add_row("tokens", f"{metrics[-1]['generated_tokens']:,} generated")
    table.add_row("report", Text(str(run.report)))
    return table


def _by_size(item: tuple[str, float]) -> float:
    return -item[1]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
