"""What samples let us believe of the value that they were drawn from.

Of values from 0 to 1 the belief before any sample is Beta(1/4, 1/4): where a policy is going right or wrong most of its
steps are nearly decided, so values near 0 and near 1 are likelier than those between. Samples of total S among n make
it Beta(1/4 + S, 1/4 + n - S).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt

PRIOR = 0.25
Span = tuple[float, float]
UNIT: Span = (0.0, 1.0)

Mean = Callable[[float, int, Span], float]
"""(total of the samples; how many, at least 1; lowest and highest that there can be) -> the value."""


def sample_mean(total: float, count: int, span: Span = UNIT) -> float:
    """Compute total / count, whatever the span: fair, and takes few samples at their word.

    >>> sample_mean(2.0, 2)
    1.0
    """
    return total / count


def mean(total: float, count: int, span: Span = UNIT) -> float:
    """Compute the mean of the belief: (total + 1/4) / (count + 1/2), for samples from 0 to 1.

    The estimate with the least expected squared error, over values spread as the belief before any sample has them.
    Few samples that agree do not make it 0 or 1; with many it is their mean.

    >>> mean(2.0, 2), round(mean(0.0, 0), 1), mean(-2.0, 2, (-1.0, 1.0))
    (0.9, 0.5, -0.8)
    """
    low, high = span
    return low + (high - low) * _share(total, count, span)


def standard_error(total: float, count: int, span: Span = UNIT) -> float:
    """Compute the standard deviation of the belief, with V its mean: sqrt(V (1 - V) / (count + 3/2)), as `mean`.

    >>> round(standard_error(0.0, 2), 3), round(standard_error(3.0, 6), 3)
    (0.16, 0.183)
    """
    low, high = span
    share = _share(total, count, span)
    return (high - low) * sqrt(share * (1 - share) / (count + 2 * PRIOR + 1))


def most_for(error: float) -> int:
    """Compute ceil(1 / (4 error^2) - 3/2), at least 1: samples that bring any standard error down to `error`.

    >>> most_for(0.18)
    7
    """
    return max(ceil(0.25 / error**2 - 2 * PRIOR - 1), 1)


def _share(total: float, count: int, span: Span) -> float:
    """Where in the span the mean of the belief lies, from 0 to 1."""
    low, high = span
    return ((total - count * low) / (high - low) + PRIOR) / (count + 2 * PRIOR)
