"""TensorBoard event files: every scalar is a column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from apportion.doctor.history import History
from apportion.errors import InputError

MARK = "tfevents"


def is_event_file(path: Path) -> bool:
    return MARK in path.name


def event_files(folder: Path) -> list[Path]:
    """Those in a folder and below it."""
    return sorted(path for path in folder.rglob(f"*{MARK}*") if path.is_file())


def read(files: Sequence[Path]) -> History:
    """Read the scalars of event files as one run: what was taken up again goes on in a file of its own."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util import tensor_util
    except ImportError as error:
        raise InputError("reading event files takes tensorboard: pip install tensorboard") from error
    rows: dict[int, dict[str, float]] = defaultdict(dict)
    for path in files:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    rows[event.step][value.tag] = float(tensor_util.make_ndarray(value.tensor).item())
    return History.of_rows([{"step": step} | rows[step] for step in sorted(rows)], "TensorBoard log")
