"""A run as a curve, and runs that differ in their seed alone as one arm."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.train.config import read_toml
from apportion.train.run_folder import RunFolder

AXES = {"tokens": "tokens generated, continuations included", "seconds": "seconds of training"}
"""What is equal when runs are compared, and what it is called."""
NAMELESS = ("seed", "checkpoint_every", "ledger_every", "threads", "trackers", "token_budget", "steps", "held_out")
"""Settings that do not make another arm: what comes out for the same tokens does not hang on them."""
WINDOW = 0.1
"""A rate at some place is the mean over the steps within so much of the whole before it."""


@dataclass(frozen=True)
class Run:
    """What a run scored in every step, and what it had spent by the end of that step.

    places: by axis, cumulated; an axis is missing where the run did not log it. held_out: at the end; None = untested.
    """

    folder: Path
    seed: int
    settings: dict[str, Any]
    rates: list[float]
    places: dict[str, list[float]]
    held_out: float | None

    @classmethod
    def read(cls, folder: str | Path, score: str = "pass_rate") -> Run:
        """Read the folder of a run, finished or not. Steps in which nothing was scored are left out.

        Raises InputError where the folder holds no run, no step, or no such score.
        """
        run = RunFolder.open(folder)
        settings = read_toml(run.path / "config.toml")  # as it stands, so that runs of other versions can be read
        rows = run.rows("metrics.jsonl")
        if not rows:
            raise InputError(f"{folder}: the run has taken no step yet")
        if score not in rows[0]:
            raise InputError(f"{folder}: metrics.jsonl has no {score!r}; expected a number a step, as `pass_rate`")
        kept = [n for n, row in enumerate(rows) if row[score] is not None]
        if not kept:
            raise InputError(f"{folder}: no step has a {score!r}")
        places: dict[str, list[float]] = {"tokens": [float(rows[n]["generated_tokens"]) for n in kept]}
        taken = {row["step"]: row["seconds"] for row in run.rows("timings.jsonl")}
        if taken:  # a step that was killed right behind its checkpoint has no row: then it took as long as the others
            usual = statistics.median(taken.values())
            spent = list(accumulate(taken.get(row["step"], usual) for row in rows))
            places["seconds"] = [spent[n] for n in kept]
        after = run.evaluations().get("after")
        return cls(
            folder=run.path,
            seed=int(settings.get("seed", 0)),
            settings={name: value for name, value in settings.items() if name not in NAMELESS},
            rates=[rows[n][score] for n in kept],
            places=places,
            held_out=after["rate"] if after else None,
        )

    def total(self, axis: str) -> float:
        return self.places[axis][-1]

    def rate_at(self, place: float, axis: str, window: float) -> float:
        """Mean over the steps that ended within `window` before a place; of the nearest step where none did."""
        places = self.places[axis]
        first, end = bisect_right(places, place - window), bisect_right(places, place)
        if first == end:
            return self.rates[min(bisect_left(places, place), len(places) - 1)]
        return statistics.fmean(self.rates[first:end])

    def mean_rate(self, upto: float, axis: str) -> float:
        """Mean over what was spent, up to a place: the area under the curve, over its width."""
        ends = [0.0, *(min(place, upto) for place in self.places[axis])]
        widths = [after - before for before, after in pairwise(ends)]
        return sum(width * rate for width, rate in zip(widths, self.rates, strict=True)) / ends[-1]


@dataclass(frozen=True)
class Arm:
    """Runs with the same settings and other seeds. name: what sets it apart from the other arms."""

    name: str
    runs: tuple[Run, ...]


def arms(runs: Sequence[Run]) -> list[Arm]:
    """Put runs together that differ in their seed alone, in the order in which their settings first came.

    Raises InputError where two of them have the same seed too.
    """
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(repr(sorted(run.settings.items())), []).append(run)
    for same in together.values():
        seeds = [run.seed for run in same]
        if twice := [run for run in same if seeds.count(run.seed) > 1]:
            raise InputError(f"{twice[0].folder} and {twice[1].folder} are one run twice: same settings, same seed")
    found = list(together.values())
    return [Arm(_name(own[0], [other[0] for other in found]), tuple(own)) for own in found]


def _name(run: Run, all_runs: Sequence[Run]) -> str:
    """The recipe, and what else sets the run apart from those in which the same setting has an effect."""
    own = [
        f"{name}={value}"
        for name, value in run.settings.items()
        if name != "recipe" and any(other.settings.get(name, value) != value for other in all_runs)
    ]
    return ", ".join([str(run.settings.get("recipe")), *own])
