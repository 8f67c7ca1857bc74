"""History: the figures of a run, step by step, under the names of `names`, whoever wrote them down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from apportion.doctor import names, trend
from apportion.errors import InputError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Series:
    """A figure at the steps that have it.

    called: by what name, or names, the run knows it.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    called: str

    @property
    def first(self) -> float:
        return trend.first(self.values)

    @property
    def last(self) -> float:
        return trend.last(self.values)

    def span(self, holds: Callable[[float], bool]) -> tuple[int, int]:
        """From which step on it holds, by the median of five steps, up to the last; at most the last third."""
        begun = len(self.values) - max(1, len(self.values) // 3)
        while begun > 0 and holds(median(self.values[max(0, begun - 3) : begun + 2])):
            begun -= 1
        return self.steps[begun], self.steps[-1]


@dataclass(frozen=True, eq=False)
class History:
    """A run, as it was written down.

    kind: what wrote it. steps: in order. columns: by the run's own names, None where a step has none.
    settings: of the run, as far as they are known. not_finite: steps at which a figure was NaN or infinite, by the
    run's names. sources: for a figure by our name, the run's names to add up.
    """

    kind: str
    steps: tuple[int, ...]
    columns: Mapping[str, tuple[float | None, ...]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    not_finite: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[str, Series] = field(default_factory=dict, repr=False)

    @classmethod
    def of_rows(cls, rows: Sequence[Row], kind: str = "rows", settings: Mapping[str, Any] | None = None) -> History:
        """Make one of rows with a step each; rows of one step are put together, the later entry counts.

        Rows without a step are numbered. What is no number is left out. Raises InputError where no row has a figure.
        """
        merged: dict[int, dict[str, float]] = {}
        for number, row in enumerate(rows):
            merged.setdefault(_step_of(row, number), {}).update(_numbers(row))
        steps = tuple(sorted(merged))
        called = {name: None for step in steps for name in merged[step]}
        if not called:
            raise InputError(f"no step of this {kind} has a figure; there is nothing to look at")
        columns = {name: tuple(_finite(merged[step].get(name)) for step in steps) for name in called}
        broken = {
            name: tuple(step for step in steps if not math.isfinite(merged[step].get(name, 0.0))) for name in called
        }
        broken = {name: where for name, where in broken.items() if where}
        return cls(kind, steps, columns, dict(settings or {}), broken, names.sources(called))

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any]], **settings: Any) -> History:
        """Make one of columns of equal length; without a column `step`, steps are numbered from 0."""
        sizes = {len(column) for column in columns.values()}
        if len(sizes) != 1:
            raise InputError(f"columns must have one length, and have {sorted(sizes)}")
        rows = [dict(zip(columns, entries, strict=True)) for entries in zip(*columns.values(), strict=True)]
        return cls.of_rows(rows, "columns", settings)

    def has(self, name: str) -> bool:
        """Whether the run has any entry of a figure."""
        return bool(self.series(name).values)

    def logged(self, name: str) -> bool:
        """Whether the run has a figure, though it may never have been a number."""
        return name in self.sources

    def series(self, name: str) -> Series:
        """A figure, at the steps that have it."""
        if name not in self._known:
            self._known[name] = self._made(name)
        return self._known[name]

    def _made(self, name: str) -> Series:
        parts = self.sources.get(name, ())
        grids = [self.columns[part] for part in parts]
        steps, values = [], []
        for step, entries in zip(self.steps, zip(*grids, strict=True), strict=bool(parts)):
            there = [entry for entry in entries if entry is not None]
            if len(there) == len(entries):
                steps.append(step)
                values.append(sum(there))
        return Series(tuple(steps), tuple(values), " + ".join(parts))

    def pair(self, one: str, other: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Two figures, at the steps that have both."""
        left, right = (dict(zip(s.steps, s.values, strict=True)) for s in (self.series(one), self.series(other)))
        both = [step for step in left if step in right]
        return tuple(left[step] for step in both), tuple(right[step] for step in both)

    @property
    def success(self) -> Series:
        """What the run is to raise: the share of answers that pass, and where nobody says it, the reward."""
        passed = self.series("pass_rate")
        return passed if len(passed.values) >= trend.FEWEST or not self.has("reward") else self.series("reward")

    @property
    def improved(self) -> bool:
        """Whether success rose over the run by a tenth of what there is to gain, or stands near its top."""
        success = self.success
        if not success.values:
            return False
        if success.called in self.sources.get("pass_rate", ()) and success.last >= 0.9:
            return True
        span = max(success.values) - min(success.values)
        top = 1.0 if max(success.values) <= 1 else max(success.values)
        return trend.rose(success.values, max(0.1 * (top - success.first), 0.25 * span, 1e-9))

    @property
    def leashed(self) -> bool | None:
        """Whether a KL to the starting model holds the policy; None where that cannot be told."""
        if self.has("kl_beta"):
            return self.series("kl_beta").last > 0
        if "kl_beta" in self.settings:
            return float(self.settings["kl_beta"]) > 0
        called = self.series("kl").called  # TRL and verl work out a KL only where it has a weight
        return True if called and (self.kind.startswith(("TRL", "verl")) or "/" in called) else None


def _step_of(row: Row, number: int) -> int:
    for name in names.STEP:
        entry = row.get(name)
        if isinstance(entry, int | float) and not isinstance(entry, bool) and math.isfinite(entry):
            return int(entry)
    return number


def _numbers(row: Row) -> dict[str, float]:
    plain = {names.plain(name): entry for name, entry in row.items() if name not in names.STEP}
    return {
        name: float(entry)
        for name, entry in plain.items()
        if isinstance(entry, int | float) and not isinstance(entry, bool)
    }


def _finite(entry: float | None) -> float | None:
    return entry if entry is not None and math.isfinite(entry) else None
