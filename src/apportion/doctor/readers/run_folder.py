"""Our own run folders: metrics, timings, settings, and of saved ledgers what the metrics of an older run lack."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from apportion.doctor.history import History
from apportion.doctor.readers import ledgers
from apportion.errors import InputError

METRICS = "metrics.jsonl"


def read(folder: Path) -> History:
    """Read a run folder; a last line cut short, as a killed process leaves it, is passed over."""
    rows = _rows(folder / METRICS)
    if (folder / "timings.jsonl").exists():
        rows += _rows(folder / "timings.jsonl")
    known = {name for row in rows for name in row}
    saved = [{"step": step} | figures for step, figures in ledgers.figures(folder / "ledgers", known)]
    return History.of_rows([*saved, *rows], "run of apportion", _settings(folder / "config.toml"))


def _rows(path: Path) -> list[dict[str, Any]]:
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise InputError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: expected an object")
        found.append(row)
    return found


def _settings(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not a TOML file ({error})") from error
