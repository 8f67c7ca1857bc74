"""What a person sees while a file is labelled."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from apportion.value_file.meter import Meter
from apportion.values.monte_carlo import Spending

LINES = 10
"""Lines printed over the work where the output is no terminal."""


class Display:
    """A live bar in a terminal; a line every so often in a file or pipe.

    Told after every continuation. The work done is that of the settled prefixes, each at its most continuations, and
    those that the others have had; so what is left is never more than is said.
    """

    def __init__(self, console: Console, meter: Meter) -> None:
        self._console, self._meter = console, meter
        self._lines, self._total = 0, 0
        self._progress = Progress(
            TextColumn("values"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[figures]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            speed_estimate_period=600,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("values", total=None, figures="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, spending: Spending) -> None:
        meter = self._meter
        settled = spending.settled + meter.full
        done, total = spending.settled * meter.most + meter.drawn, spending.wanted * meter.most
        figures = (
            f"{settled:,}/{spending.wanted:,} prefixes  {meter.generated:,} tokens"
            f"{f' + {meter.taken:,} stored' if meter.taken else ''}"
            f"{f'  error {spending.error:.3f}' if spending.error == spending.error else ''}"
        )
        self._progress.update(self._task, completed=done, total=total, figures=figures)
        if total != self._total:  # more prefixes are wanted than were known of
            self._lines, self._total = done * LINES // total, total
        elif not self._console.is_terminal and done * LINES >= (self._lines + 1) * total:
            self._lines = done * LINES // total
            self._console.print(f"{done / total:4.0%}  {figures}", highlight=False, soft_wrap=True)
