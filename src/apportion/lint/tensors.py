"""One column of a batch, from whatever it came as: a tensor, an array, a list, a list of lists of mixed lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.lint import tolerance


@dataclass(frozen=True, eq=False)
class Column:
    """Numbers in float64, and how exact they were; row lengths where they came as a list of lists."""

    numbers: Tensor
    epsilon: float
    lengths: tuple[int, ...] | None = None


def column_of(name: str, value: Any) -> Column:
    """Read a column of numbers; lists are padded with 0, and null in a list is NaN.

    Raises InputError for what holds anything but real numbers.
    """
    if isinstance(value, (list, tuple)):
        return _of_list(name, list(value))
    if value is None or isinstance(value, (str, bytes)):
        raise InputError(f"{name} must hold numbers, got {value!r}")
    tensor = _tensor(name, value)
    if tensor.is_complex():
        raise InputError(f"{name} must hold real numbers, got complex ones")
    return Column(tensor.double(), tolerance.epsilon(tensor))


def _tensor(name: str, value: Any) -> Tensor:
    try:
        if not isinstance(value, Tensor):
            import numpy

            array = numpy.asarray(value)
            value = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
        here: Tensor = value.detach().cpu()
        return here if here.layout is torch.strided else here.to_dense()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must hold numbers: {str(error).splitlines()[0]}") from error


def _of_list(name: str, entries: list[Any]) -> Column:
    if not any(isinstance(entry, (list, tuple)) for entry in entries):
        numbers = [_number(name, f"entry {n}", entry) for n, entry in enumerate(entries)]
        return Column(torch.tensor(numbers, dtype=torch.float64), tolerance.FLOAT32)
    for n, entry in enumerate(entries):
        if not isinstance(entry, (list, tuple)):
            raise InputError(f"{name}, row {n}: expected a list as in the other rows, got {entry!r}")
    lengths = tuple(len(entry) for entry in entries)
    width = max(lengths)
    rows = [
        [_number(name, f"row {n}, position {t}", number) for t, number in enumerate(entry)]
        + [0.0] * (width - len(entry))
        for n, entry in enumerate(entries)
    ]
    return Column(torch.tensor(rows, dtype=torch.float64), tolerance.FLOAT32, lengths)


def _number(name: str, where: str, entry: Any) -> float:
    if entry is None:
        return float("nan")
    if not isinstance(entry, (bool, int, float)):
        raise InputError(f"{name}, {where}: expected a number, got {str(entry)[:40]!r}")
    try:
        return float(entry)
    except OverflowError as error:
        raise InputError(f"{name}, {where}: the number is too large") from error
