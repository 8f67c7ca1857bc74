"""The door of every setting here: a number between two bounds, or an error that says what came."""

from __future__ import annotations

import math

from apportion.errors import InputError


def refuse_outside(name: str, came: int | float, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise InputError unless `came` is a finite number from `low` to `high`, both included.

    >>> refuse_outside("share", 0.2, 0.0, 1.0)
    """
    if not (math.isfinite(came) and low <= came <= high):
        least = "" if low == -math.inf else f" of at least {low:g}"
        allowed = least if high == math.inf else f" from {low:g} to {high:g}"
        raise InputError(f"{name} must be a finite number{allowed}; {came} came")
