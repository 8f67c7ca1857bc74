"""The log history of TRL and of any trainer of transformers: rows of figures with a step each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apportion.doctor.history import History
from apportion.errors import InputError

STATE = "trainer_state.json"
SUMMARY = ("train_runtime", "total_flos")
"""Fields of the row that a trainer adds when it is done, whose loss is a mean over the run."""


def state_in(folder: Path) -> Path | None:
    """The state in a folder, or in the newest checkpoint in it."""
    if (folder / STATE).exists():
        return folder / STATE
    found = [path for path in folder.glob(f"checkpoint-*/{STATE}") if re.fullmatch(r"checkpoint-\d+", path.parent.name)]
    return max(found, key=lambda path: int(path.parent.name.removeprefix("checkpoint-")), default=None)


def of_rows(rows: Sequence[Any], path: Path) -> History:
    """Make a history of them. Raises InputError for a row that is no object."""
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"{path}: row {number} of the log is {type(row).__name__}; expected an object")
    kept = [row for row in rows if not any(name in row for name in SUMMARY)]
    ours = any("outcome_mean" in row for row in kept)
    return History.of_rows(kept, "metrics of apportion" if ours else "TRL log history")
