"""How far two numbers may lie apart before they are called different. Every tolerance of the linter is made here.

A column is as exact as the type that it was stored in. A sum over n tokens is taken to have been worked out in float32
(in float64 where all columns are), and its rounding grows with the square root of n.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

Size = TypeVar("Size", float, Tensor)

FLOAT32 = torch.finfo(torch.float32).eps
LARGEST = torch.finfo(torch.float32).max
"""Numbers past this one are none: with them rounding would allow anything."""


def epsilon(column: Tensor) -> float:
    """The relative spacing of the numbers of a column as it came.

    Integers are exact. Numbers in float64 that are all float32 numbers were float32 once.

    >>> epsilon(torch.tensor([0.5, 0.25], dtype=torch.float64)) == FLOAT32
    True
    """
    if not column.is_floating_point():
        return FLOAT32
    if column.dtype is torch.float64:
        finite = column[column.isfinite()]
        if bool((finite.float().double() == finite).all()):
            return FLOAT32
    return torch.finfo(column.dtype).eps


def of_sum(stored: float, *, scale: Size, terms: int) -> Size:
    """Compute scale * (4 * stored + 16 * min(stored, float32) * sqrt(terms)).

    scale: of the largest number or sum of numbers that took part; stored: `epsilon` of the coarsest column.

    >>> of_sum(0.25, scale=2.0, terms=0)
    2.0
    """
    return scale * (4 * stored + 16 * min(stored, FLOAT32) * math.sqrt(terms))


def of_number(stored: float, size: Size) -> Size:
    """What rounding allows for a number of that size that was stored and worked on once."""
    return of_sum(stored, scale=size, terms=1)


def of_mapped(tolerance: float, *, factor: float, largest: float, stored: float) -> float:
    """What a tolerance becomes when its numbers are multiplied by `factor` and come out as large as `largest`.

    >>> of_mapped(0.5, factor=4.0, largest=0.0, stored=0.25)
    2.0
    """
    return tolerance * factor + of_number(stored, largest)
