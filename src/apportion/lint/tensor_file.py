"""Columns from a file: `.npz`, `.safetensors`, or rows in `.jsonl` and `.parquet`. Nothing in a file is ever run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apportion import files
from apportion.errors import InputError, did_you_mean
from apportion.lint import names


def read_columns(path: Path, renamed: Mapping[str, str]) -> dict[str, Any]:
    """Read the columns that the linter knows; others come without their content.

    renamed: for a known name, how the file calls that column.
    Raises InputError for a file that is not there, has another ending, is damaged or lacks a renamed column.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    readers = {".npz": _npz, ".safetensors": _safetensors, ".jsonl": _rows, ".parquet": _rows}
    if path.suffix not in readers:
        raise InputError(f"{path}: the name must end in one of {', '.join(readers)}, which says what the file holds")
    columns = readers[path.suffix](path, {*names.KNOWN, *renamed.values()})
    for called in renamed.values():
        if called not in columns:
            raise InputError(f"{path}: there is no column {called!r}{did_you_mean(called, columns)}")
    taken = {called: columns[called] for called in renamed.values()}
    rest = {name: column for name, column in columns.items() if name not in taken}
    return rest | {name: taken[called] for name, called in renamed.items()}


def _npz(path: Path, wanted: set[str]) -> dict[str, Any]:
    import numpy

    try:
        with open(path, "rb") as file, numpy.load(file, allow_pickle=False) as archive:
            return {name: archive[name] if name in wanted else None for name in archive.files}
    except Exception as error:  # whatever a damaged archive makes zip and numpy raise
        raise InputError(f"{path}: not an .npz file of plain arrays ({_line(error)})") from error


def _safetensors(path: Path, wanted: set[str]) -> dict[str, Any]:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise InputError("safetensors files need safetensors: pip install 'apportion[train]'") from error
    try:
        with safe_open(path, framework="pt") as file:
            said = {name: text for name, text in (file.metadata() or {}).items() if name in wanted}
            tensors = list(file.keys())
            return said | {name: file.get_tensor(name) if name in wanted else None for name in tensors}
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise InputError(f"{path}: not a safetensors file ({_line(error)})") from error


def _rows(path: Path, wanted: set[str]) -> dict[str, Any]:
    """One row of the batch a row of the file; a number or list in each, the same fields in all."""
    columns: dict[str, list[Any]] = {}
    for number, (place, row) in enumerate(files.read_rows(path)):
        if number == 0:
            columns = {name: [] for name in row}
        for name in {*columns, *row} & wanted:
            if name not in row or name not in columns:
                raise InputError(f"{place}: {name} must be in every row or in none")
            columns[name].append(row[name])
    return {name: column if name in wanted else None for name, column in columns.items()}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
