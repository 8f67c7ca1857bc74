"""Measure: bursts of calls, several functions taking turns, and the tables that come of it.

A burst calls a function for a twentieth of a second, or once if it takes longer, and is worth its median call. What is
to be compared takes turns, a burst each, for some rounds; a figure is the median of the rounds. So work that others do
on the machine falls on all alike. What a call gives is thrown away outside the measured time.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

BURST = 0.05  # seconds
MOST_CALLS = 30
SLOW = 2.0  # seconds; what takes longer is measured in a few rounds only
FEW = 3
BUSY = 0.5  # load average

Burst = Callable[[], list[float]]
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Times:
    """Seconds: the median of the rounds, and the least of all calls."""

    median: float
    least: float


def burst(run: Callable[..., object], prepare: Callable[[], Any] | None = None) -> list[float]:
    """Seconds of every call in a burst; `prepare` makes what `run` is given, outside the measured time."""
    taken: list[float] = []
    gc.collect()
    gc.disable()
    while sum(taken) < BURST and len(taken) < MOST_CALLS:
        given = () if prepare is None else (prepare(),)
        begun = time.perf_counter()
        kept = run(*given)
        taken.append(time.perf_counter() - begun)
        del kept, given
    gc.enable()
    return taken


def in_turns(bursts: dict[Name, Burst], rounds: int) -> dict[Name, Times]:
    """Measure all of them `rounds` times in turn, every other round backwards."""
    medians: dict[Name, list[float]] = {name: [] for name in bursts}
    least = dict.fromkeys(bursts, math.inf)
    for number in range(rounds):
        for name in list(bursts)[:: -1 if number % 2 else 1]:
            if number >= FEW and medians[name][0] > SLOW:
                continue
            taken = bursts[name]()
            medians[name].append(statistics.median(taken))
            least[name] = min(least[name], *taken)
    return {name: Times(statistics.median(medians[name]), least[name]) for name in bursts}


@dataclass(frozen=True)
class Owed:
    """A promised figure and what was found, None where it could not be measured."""

    what: str
    found: float | None
    bound: str
    holds: bool
    remark: str = ""

    def __str__(self) -> str:
        if self.found is None:
            return f"- not measured: {self.what}; owed {self.bound}"
        return (
            f"- {'met' if self.holds else 'NOT met'}: {self.what} {figure(self.found)}{self.remark}; owed {self.bound}"
        )


def at_most(what: str, found: float | None, limit: float) -> Owed:
    return Owed(what, found, f"at most {limit:,}", found is not None and found <= limit)


def no_slower(what: str, ours: Times, other: Times, limit: float) -> Owed:
    """Our time over the other's, by the medians; what the least times say is added."""
    owed = at_most(what, ours.median / other.median, limit)
    return replace(owed, remark=f" (by the least times {figure(ours.least / other.least)})")


def faster(what: str, ours: Times, other: Times | None, limit: float) -> Owed:
    """The other's time over ours, likewise; None where there was no other."""
    if other is None:
        return Owed(what, None, f"at least {limit:,}", False)
    found, remark = other.median / ours.median, f" (by the least times {figure(other.least / ours.least)})"
    return Owed(what, found, f"at least {limit:,}", found >= limit, remark)


@dataclass
class Section:
    """A table of results with the promises that it settles."""

    title: str
    notes: str
    header: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    owed: list[Owed] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [f"| {' | '.join(cells)} |" for cells in (self.header, ["---"] * len(self.header), *self.rows)]
        return "\n".join([f"### {self.title}", "", self.notes, "", *lines, "", *map(str, self.owed)]).strip() + "\n"


def figure(number: float) -> str:
    """With three digits that count: 0.0213, 8.41, 1,204; very small ones as 2.4e-07.

    >>> [figure(number) for number in (0.02134, 8.406, 1204.4, 2.4e-7, 0)]
    ['0.0213', '8.41', '1,204', '2.4e-07', '0']
    """
    if number == 0:
        return "0"
    if abs(number) < 1e-3:
        return f"{number:.1e}"
    return f"{number:,.{max(0, 2 - math.floor(math.log10(abs(number))))}f}"


def thousandths(times: Times) -> list[str]:
    """Median and least in milliseconds."""
    return [figure(times.median * 1e3), figure(times.least * 1e3)]


def load_average() -> float:
    return os.getloadavg()[0]


def conditions(rounds: int, load: float, versions: str) -> str:
    """Under which conditions a section was measured, for a line above its table."""
    import torch

    processor = f"{os.cpu_count()} cores ({torch.backends.cpu.get_cpu_capability()})"
    names = f"torch {torch.__version__}" + (f", {versions}" if versions else "")
    return (
        f"{names}; {torch.get_num_threads()} threads on {processor}; {rounds} rounds; "
        f"load average at the start {load:.1f}."
    )
