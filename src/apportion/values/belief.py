"""What samples, each from 0 to 1, let us believe of the value that they were drawn from.

Before any sample the belief is Beta(1/4, 1/4): where a policy is going right or wrong most of its steps are nearly
decided, so values near 0 and near 1 are likelier than those between. Samples of total S among n make it
Beta(1/4 + S, 1/4 + n - S).
"""

from __future__ import annotations

from math import ceil, sqrt

PRIOR = 0.25


def mean(total: float, count: int) -> float:
    """Compute the mean of the belief: (total + 1/4) / (count + 1/2).

    The estimate with the least expected squared error, over values spread as the belief before any sample has them.
    Few samples that agree do not make it 0 or 1; with many it is their mean.

    >>> mean(2.0, 2), round(mean(0.0, 0), 1)
    (0.9, 0.5)
    """
    return (total + PRIOR) / (count + 2 * PRIOR)


def standard_error(total: float, count: int) -> float:
    """Compute the standard deviation of the belief, with V its mean: sqrt(V (1 - V) / (count + 3/2)).

    >>> round(standard_error(0.0, 2), 3), round(standard_error(3.0, 6), 3)
    (0.16, 0.183)
    """
    value = mean(total, count)
    return sqrt(value * (1 - value) / (count + 2 * PRIOR + 1))


def most_for(error: float) -> int:
    """Compute ceil(1 / (4 error^2) - 3/2), at least 1: samples that bring any standard error down to `error`.

    >>> most_for(0.18)
    7
    """
    return max(ceil(0.25 / error**2 - 2 * PRIOR - 1), 1)
