"""Arms side by side at equal cost: rates along the way, the mean over it, and how far each is from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.compare.interval import Estimate, difference, estimate
from apportion.compare.runs import AXES, WINDOW, Arm, Run, arms
from apportion.errors import InputError

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Line:
    """An arm over an axis. at: rates at the shares of it. lead: mean less that of the first arm, seed by seed."""

    arm: Arm
    at: tuple[Estimate, ...]
    mean: Estimate
    lead: Estimate | None


@dataclass(frozen=True)
class Comparison:
    """lines: by axis, an entry an arm; upto: where each axis ends, which is where the first of all runs ended."""

    arms: list[Arm]
    upto: dict[str, float]
    lines: dict[str, list[Line]]
    held_out: list[Estimate | None]
    score: str

    @property
    def verdicts(self) -> list[str]:
        """What can be said of every arm against the first, in plain words."""
        return [
            _verdict(line, self.arms[0].name, axis)
            for axis, lines in self.lines.items()
            for line in lines
            if line.lead is not None
        ]


def compare(folders: Sequence[str | Path], score: str = "pass_rate") -> Comparison:
    """Compare the runs in these folders; those with the same settings are seeds of one arm.

    Raises InputError for fewer than two runs, and for what `Run.read` and `arms` refuse.
    """
    if len(folders) < 2:
        raise InputError(f"{len(folders)} run to compare; expected two or more")
    found = arms([Run.read(folder, score) for folder in folders])
    runs = [run for arm in found for run in arm.runs]
    axes = [axis for axis in AXES if all(axis in run.places for run in runs)]
    upto = {axis: min(run.total(axis) for run in runs) for axis in axes}
    return Comparison(
        arms=found,
        upto=upto,
        lines={axis: [_line(arm, found[0], axis, upto[axis]) for arm in found] for axis in axes},
        held_out=[_held_out(arm) for arm in found],
        score=score,
    )


def _line(arm: Arm, first: Arm, axis: str, upto: float) -> Line:
    at = [[run.rate_at(share * upto, axis, WINDOW * upto) for run in arm.runs] for share in SHARES]
    own, other = ({run.seed: run.mean_rate(upto, axis) for run in each.runs} for each in (arm, first))
    return Line(
        arm=arm,
        at=tuple(map(estimate, at)),
        mean=estimate(list(own.values())),
        lead=None if arm is first else difference(own, other),
    )


def _held_out(arm: Arm) -> Estimate | None:
    tested = [run.held_out for run in arm.runs if run.held_out is not None]
    return estimate(tested) if tested else None


def _verdict(line: Line, first: str, axis: str) -> str:
    assert line.lead is not None
    equal = "the same tokens" if axis == "tokens" else "the same time"
    if line.lead.half is None:
        lead = f"{line.arm.name}: {line.lead.points} points on {first} over {equal}"
        return f"{lead}, but of one seed on a side, which proves nothing"
    if not line.lead.told_apart:
        return f"{line.arm.name} and {first} cannot be told apart over {equal}: {line.lead.points} points"
    side = "ahead of" if line.lead.mean > 0 else "behind"
    return f"{line.arm.name} is {side} {first} over {equal}: {line.lead.points} points"
