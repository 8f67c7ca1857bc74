"""How many continuations a prefix gets: a rule says after every round how many more each should have."""

from __future__ import annotations

from collections.abc import Callable

from apportion.errors import InputError
from apportion.values.belief import most_for
from apportion.values.sample_tree import Estimate

Rule = Callable[[Estimate, int], int]
"""(what is known of a prefix, how many continuations it has had) -> how many more it should have now."""


def uniform(samples: int = 6) -> Rule:
    """The same number for every prefix. Source: VinePPO, arXiv:2410.01679.

    Raises InputError unless at least 1.

    >>> uniform(6)(Estimate(0.5, 0.2, 2), 2)
    4
    """
    if samples < 1:
        raise InputError(f"Monte-Carlo values need at least 1 sample a prefix, {samples} were asked for")
    return lambda _, drawn: samples - drawn


def adaptive(error: float = 0.18, *, least: int = 1, most: int | None = None) -> Rule:
    """Continue until the standard error is at most `error`; one at a time behind the first `least`.

    Counted are all samples that ran through the prefix, so one that many share may need no continuation at all. Where
    samples agree few do (two or three), where they do not more follow.

    Guarantee: when the rule stops, the standard deviation of the belief (`values.belief`) is at most `error` (times the
    width of the span of scores). A rule that looks at the samples alone does not change what they let us believe,
    wherever it stops; so over values spread as the belief before any sample has them, the belief's mean is off by at
    most `error` in the root mean square.
    For no value does it take more samples than `most_for(error)`, a ceiling that `most` may lower.
    Raises InputError unless 0 < error < 1/2 and 1 <= least <= most.

    >>> rule = adaptive(0.15, least=2)
    >>> rule(Estimate(0.5, 0.408, 0), 0), rule(Estimate(0.1, 0.160, 2), 2), rule(Estimate(0.1, 0.121, 3), 3)
    (2, 1, 0)
    """
    if not 0 < error < 0.5:
        raise InputError(f"a standard error of values from 0 to 1 must be above 0 and below 0.5, {error} was asked for")
    ceiling = most_for(error) if most is None else most
    if not 1 <= least <= ceiling:
        raise InputError(f"at least {least} and at most {ceiling} samples a prefix were asked for")

    def more(known: Estimate, drawn: int) -> int:
        if drawn >= ceiling:
            return 0
        if known.count < least:
            return least - known.count
        return int(known.count < ceiling and known.error > error)

    return more
