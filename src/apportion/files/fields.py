"""Entries of a row, checked: each function gives the entry, or says where it stands, what came and what is expected."""

from __future__ import annotations

import math
import reprlib
from typing import Any

from apportion.errors import InputError
from apportion.files.storage import Row

INT64 = range(-(2**63), 2**63)
"""What a token id, a turn or a group may be."""


def needed(row: Row, name: str, place: str) -> Any:
    """The entry of a field that every row must have."""
    if name not in row:
        raise InputError(f"{place}: the field {name!r} is missing; the row has {', '.join(row) or 'no field'}")
    return row[name]


def name_of_group(entry: Any, name: str, place: str) -> str | int:
    if not isinstance(entry, str | int) or isinstance(entry, bool):
        raise InputError(f"{place}: {name} is {reprlib.repr(entry)}; expected a string or a whole number")
    return entry


def number(entry: Any, name: str, place: str, expected: str = "a finite number") -> float:
    if not isinstance(entry, int | float) or not finite(entry):
        raise InputError(f"{place}: {name} is {reprlib.repr(entry)}; expected {expected}")
    return float(entry)


def score(entry: Any, name: str, place: str) -> float | None:
    """The judge's score of a whole answer; null = not scored, which is not 0."""
    return None if entry is None else number(entry, name, place, "a finite number, or null for not scored")


def flag(entry: Any, name: str, place: str) -> bool:
    if not (isinstance(entry, bool) or (isinstance(entry, int) and entry in (0, 1))):
        raise InputError(f"{place}: {name} is {reprlib.repr(entry)}; expected true or false")
    return bool(entry)


def count(entry: Any, most: int, name: str, place: str) -> int:
    """A whole number from 0 to `most`."""
    if type(entry) is not int or not 0 <= entry <= most:
        raise InputError(f"{place}: {name} is {reprlib.repr(entry)}; expected a whole number from 0 to {most}")
    return entry


def column(row: Row, name: str, length: int, place: str) -> list[Any] | None:
    """A list with one entry a token; None where the row has none."""
    given = row.get(name)
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != length:
        came = f"{len(given)} entries" if isinstance(given, list) else type(given).__name__
        raise InputError(f"{place}: {name} has {came} for {length} tokens")
    return given


def flags(row: Row, name: str, length: int, place: str) -> list[bool] | None:
    """A list with one `true` or `false` a token; None where the row has none."""
    given = column(row, name, length, place)
    return None if given is None else [flag(entry, f"{name}[{n}]", place) for n, entry in enumerate(given)]


def is_token(entry: Any) -> bool:
    return type(entry) is int and entry in INT64


def finite(number: int | float) -> bool:
    """Whether float64 can hold it; JSON may have whole numbers of any length."""
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False
