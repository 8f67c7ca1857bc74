"""Exports of W&B: the history of a run as JSON or CSV, and the CSV of a chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apportion.doctor.history import History
from apportion.errors import InputError

OWN = ("_step", "_runtime", "_timestamp")
"""Columns that W&B adds."""
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns by which a chart's CSV gives the range that it drew."""


def of_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> History:
    """Make a history of rows; numbers may be text, as W&B writes those that JSON cannot."""
    return History.of_rows(
        [{name: _number(entry) for name, entry in row.items() if name not in OWN[1:]} for row in rows],
        "W&B history",
    )


def of_csv(text: str, path: Path) -> History:
    """Make a history of a CSV. A chart's columns are called `run - figure`; of several runs, that is refused."""
    reader = csv.DictReader(io.StringIO(text))
    columns = [name for name in reader.fieldnames or [] if name and not name.endswith(BOUNDS)]
    runs = {name.partition(" - ")[0] for name in columns if " - " in name}
    if len(runs) > 1:
        raise InputError(f"{path}: holds {len(runs)} runs ({', '.join(sorted(runs))}); export one at a time")
    short = {name: name.partition(" - ")[2] or name for name in columns}
    return of_rows([{short[name]: row[name] for name in columns if row[name]} for row in reader], path)


def rows_of_columns(document: Mapping[str, list[Any]], path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON document that holds a list for every column."""
    sizes = {len(column) for column in document.values()}
    if len(sizes) != 1:
        raise InputError(f"{path}: its columns have {sorted(sizes)} entries; expected as many in each")
    return [dict(zip(document, entries, strict=True)) for entries in zip(*document.values(), strict=True)]


def _number(entry: Any) -> Any:
    if not isinstance(entry, str):
        return entry
    try:
        return float(entry)
    except ValueError:
        return entry
