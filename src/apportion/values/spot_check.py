"""Hold values from anywhere (a critic, a likelihood, a file) against Monte-Carlo ones at a few places.

A gap that widens while training goes on is an alarm: the source no longer values the policy that there is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.engine import Engine, Wanted
from apportion.values.monte_carlo import Score, prefixes_before_steps


@dataclass(frozen=True)
class Gap:
    """How far values are from the truth, told by continuations of `count` prefixes.

    bias: mean of value - truth. squared: mean of its square, without what few continuations err by; so around 0 where
    the values are right, and at times below. error: standard error of `squared`.
    """

    count: int
    bias: float
    squared: float
    error: float

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return sqrt(max(0.0, self.squared))


def spot_check(
    values: Float[Tensor, "N K"],
    batch: tuple[Rollouts, StepMap],
    judge: tuple[Engine, Score],
    *,
    prefixes: int,
    samples: int,
    chance: random.Random,
) -> Gap | None:
    """Continue `prefixes` of the batch, drawn without preference, `samples` times each, and compare; None without any.

    (value - mean)^2 - variance / samples is what one prefix tells: it is expected to be (value - truth)^2.
    Raises InputError unless prefixes >= 1 and samples >= 2, without which there is no variance.
    """
    if prefixes < 1 or samples < 2:
        raise InputError(f"a spot check takes at least 1 prefix and 2 samples of each, {prefixes} and {samples} came")
    rows, (engine, score) = prefixes_before_steps(*batch), judge
    places = [(n, k) for n, row in enumerate(rows) for k in range(len(row))]
    places = sorted(chance.sample(places, min(prefixes, len(places))))
    wanted = [Wanted(rows[n][k], 0, samples) for n, k in places]
    scores: list[list[float]] = [[] for _ in wanted]
    for found in engine.draw(wanted):
        prefix = wanted[found.of].prefix
        scored = score(prefix.group, [*prefix.tokens, *found.tokens])
        if scored is not None:
            scores[found.of].append(scored)
    told = [(float(values[n, k]), own) for (n, k), own in zip(places, scores, strict=True) if len(own) > 1]
    if not told:
        return None
    offs = [value - sum(own) / len(own) for value, own in told]
    squares = [off**2 - _variance(own) / len(own) for off, (_, own) in zip(offs, told, strict=True)]
    return Gap(len(told), sum(offs) / len(offs), sum(squares) / len(squares), _error_of_mean(squares))


@dataclass
class Alarm:
    """Remembers the smallest gap so far, and says when a later one is wider by more than chance."""

    best: Gap | None = None

    def widened(self, gap: Gap) -> Gap | None:
        """The smallest gap before this one, where this one is wider by twice the standard error of their difference."""
        before = self.best
        if before is None or gap.squared < before.squared:
            self.best = gap
        wider = before is not None and gap.squared - before.squared > 2 * sqrt(gap.error**2 + before.error**2)
        return before if wider else None

    def state(self) -> dict[str, Any] | None:
        """What it remembers, as `load` takes it."""
        return None if self.best is None else asdict(self.best)

    def load(self, state: dict[str, Any] | None) -> None:
        """Remember that from before."""
        self.best = None if state is None else Gap(**state)


def _variance(numbers: Sequence[float]) -> float:
    """Of the numbers as a sample."""
    mean = sum(numbers) / len(numbers)
    return sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)


def _error_of_mean(numbers: Sequence[float]) -> float:
    return sqrt(_variance(numbers) / len(numbers)) if len(numbers) > 1 else 0.0
