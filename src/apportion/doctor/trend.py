"""What a column does over a run, told by ranks and medians: single steps say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

Numbers = Sequence[float] | Sequence[int]

FEWEST = 8
"""Steps under which nothing is said of a trend."""


def first(values: Numbers) -> float:
    """The median of the first third."""
    return median(values[: max(1, len(values) // 3)])


def last(values: Numbers) -> float:
    """The median of the last third."""
    return median(values[-max(1, len(values) // 3) :])


def change(values: Numbers) -> float:
    """From the median of the first third to that of the last."""
    return last(values) - first(values)


def with_time(values: Numbers) -> float:
    """Spearman's correlation with the step: 1 = only ever up, -1 = only ever down."""
    return spearman(range(len(values)), values)


def spearman(one: Numbers, other: Numbers) -> float:
    """Spearman's rank correlation; 0 where one of the two is all alike.

    >>> spearman([1, 2, 3, 4], [1, 4, 9, 16])
    1.0
    """
    return pearson(_ranks(one), _ranks(other))


def pearson(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation; 0 where one of the two is all alike."""
    means = [sum(column) / len(column) if len(column) else 0.0 for column in (one, other)]
    left, right = ([entry - mean for entry in column] for column, mean in zip((one, other), means, strict=True))
    scale = sum(a * a for a in left) * sum(b * b for b in right)
    return float(sum(a * b for a, b in zip(left, right, strict=True)) / scale**0.5) if scale else 0.0


def rose(values: Numbers, by: float) -> bool:
    """Whether it went up by at least `by`, and not by chance: the later, the higher."""
    return len(values) >= FEWEST and change(values) >= by and with_time(values) > 0.4


def fell(values: Numbers, by: float) -> bool:
    return rose([-value for value in values], by)


def _ranks(column: Numbers) -> list[float]:
    """Ranks from 0; those that are alike share their mean rank."""
    order = sorted(range(len(column)), key=column.__getitem__)
    ranks = [0.0] * len(column)
    begin = 0
    while begin < len(order):
        end = begin
        while end + 1 < len(order) and column[order[end + 1]] == column[order[begin]]:
            end += 1
        for place in range(begin, end + 1):
            ranks[order[place]] = (begin + end) / 2
        begin = end + 1
    return ranks
