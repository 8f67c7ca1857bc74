"""What a person sees when a file is labelled."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from apportion.value_file.label import Labelled


def closing_table(done: Labelled) -> Table:
    """What has values, how exact they are, and what was paid for them."""
    rollouts, steps, found, meter = done.work.rollouts, done.work.steps, done.found, done.meter
    valued = steps.mask & rollouts.votes.unsqueeze(1)
    sampled = valued & ~found.error.isnan()
    groups = len(set(rollouts.groups.tolist()))
    table = Table(title=Text(f"values: {done.target}"), show_header=False, title_justify="left")
    without = len(rollouts) - int(rollouts.votes.sum())
    table.add_row(
        "rollouts", f"{len(rollouts):,} in {groups:,} groups; {without:,} without outcome, and so without values"
    )
    table.add_row("steps", f"{int(steps.mask.sum()):,}")
    filled = int((valued & ~sampled).sum())
    table.add_row("values", f"{int(sampled.sum()):,} sampled; {filled:,} filled in from their neighbours")
    if bool(sampled.any()):
        table.add_row(
            "error", f"mean {float(found.error[sampled].mean()):.4f}, largest {float(found.error[sampled].max()):.4f}"
        )
        table.add_row("samples", f"{float(found.count[sampled].double().mean()):.1f} behind a value")
    table.add_row("continuations", f"{meter.samples:,}; {meter.cut_off:,} cut off for length")
    table.add_row("tokens", f"{meter.generated:,} generated now, {meter.taken:,} taken from the store")
    table.add_row("store", Text(str(done.store)))
    return table
