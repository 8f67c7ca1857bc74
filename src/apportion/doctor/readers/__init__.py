"""Readers: whatever a run left, as a `History`. One module a kind of log; this one sees which it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from apportion.doctor.history import History
from apportion.doctor.readers import run_folder, tensorboard, trl, verl, wandb
from apportion.errors import InputError

KINDS = (
    "a run folder of ours, a trainer's folder or trainer_state.json, TensorBoard event files, a W&B history export "
    "(.csv, .json, .jsonl), or a console log of verl"
)


def read(path: str | Path) -> History:
    """Read a run. Raises InputError, naming the path, for what is no run that we can read."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder")
    try:
        return _of_folder(path) if path.is_dir() else _of_file(path)
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: could not be read ({error})") from error


def _of_folder(folder: Path) -> History:
    if (folder / run_folder.METRICS).exists():
        return run_folder.read(folder)
    state = trl.state_in(folder)
    if state is not None:
        return _of_file(state)
    events = tensorboard.event_files(folder)
    if events:
        return tensorboard.read(events)
    raise InputError(f"{folder}: holds no run that we can read; expected {KINDS}")


def _of_file(path: Path) -> History:
    if tensorboard.is_event_file(path):
        return tensorboard.read([path])
    if path.name == run_folder.METRICS:
        return run_folder.read(path.parent)
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".csv":
        return wandb.of_csv(text, path)
    if path.suffix in (".json", ".jsonl"):
        return _of_json(_parsed(text, path), path)
    return verl.of_log(text, path)


def _of_json(document: Any, path: Path) -> History:
    if isinstance(document, dict) and "log_history" in document:
        document = document["log_history"]
        if not isinstance(document, list):
            raise InputError(f"{path}: log_history is {type(document).__name__}; expected a list of rows")
        return trl.of_rows(document, path)
    if isinstance(document, dict) and all(isinstance(column, list) for column in document.values()) and document:
        document = wandb.rows_of_columns(document, path)
    if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
        raise InputError(f"{path}: expected an object with log_history, or rows with a step each")
    if any(name in row for row in document for name in wandb.OWN):
        return wandb.of_rows(document, path)
    return trl.of_rows(document, path)


def _parsed(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from error
