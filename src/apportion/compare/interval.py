"""A mean over seeds with its 95 % interval, and the difference of two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

T95: tuple[float, ...] = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
T95 += (2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
"""Two-sided 95 % points of Student's t for 1, 2, 3, ... degrees of freedom."""
NORMAL95 = 1.960


class Estimate(NamedTuple):
    """A mean and half the width of its 95 % interval; None where one number alone says nothing of it."""

    mean: float
    half: float | None

    def __str__(self) -> str:
        """In percent."""
        return f"{100 * self.mean:.1f}" if self.half is None else f"{100 * self.mean:.1f} ± {100 * self.half:.1f}"

    @property
    def points(self) -> str:
        """As a difference, in points."""
        half = "" if self.half is None else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:+.1f}{half}"

    @property
    def told_apart(self) -> bool:
        """Whether 0 is outside the interval."""
        return self.half is not None and abs(self.mean) > self.half


def estimate(numbers: Sequence[float]) -> Estimate:
    """Mean, by Student's t.

    >>> str(estimate([0.1, 0.2, 0.3]))
    '20.0 ± 24.8'
    """
    if len(numbers) < 2:
        return Estimate(statistics.fmean(numbers), None)
    spread = statistics.stdev(numbers) / math.sqrt(len(numbers))
    return Estimate(statistics.fmean(numbers), _t95(len(numbers) - 1) * spread)


def difference(numbers: Mapping[int, float], others: Mapping[int, float]) -> Estimate:
    """`numbers` less `others`, both by seed: seed by seed where they share at least two, else of the means.

    Of means: by Welch's t, with the degrees of freedom of Welch and Satterthwaite.
    """
    shared = numbers.keys() & others.keys()
    if len(shared) >= 2:
        return estimate([numbers[seed] - others[seed] for seed in shared])
    one, two = list(numbers.values()), list(others.values())
    mean = statistics.fmean(one) - statistics.fmean(two)
    if min(len(one), len(two)) < 2:
        return Estimate(mean, None)
    parts = [statistics.variance(own) / len(own) for own in (one, two)]
    if not sum(parts):
        return Estimate(mean, 0.0)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(own) - 1) for part, own in zip(parts, (one, two), strict=True))
    return Estimate(mean, _t95(int(freedom)) * math.sqrt(sum(parts)))


def _t95(freedom: int) -> float:
    return T95[freedom - 1] if freedom <= len(T95) else NORMAL95 + 2.4 / freedom
