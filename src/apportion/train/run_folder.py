"""The folder of a run. Whatever moment the process is killed at, the folder can be read and the run taken up again.

config.toml         every setting, as resolved
metrics.jsonl       one row a step; the same bytes for the same config and machine, interrupted or not
timings.jsonl       one row a step: seconds by phase and tokens a second; a step killed behind its checkpoint has none
evaluations.json    held-out pass rates before and after
ledgers/            sampled batches with all their credit
checkpoints/        the newest state of policy, optimiser and step
model/              the trained model, once the run is finished
report.html         curves and answers
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from apportion.errors import InputError
from apportion.files import not_written, read_rows, write_atomically
from apportion.train.config import TrainConfig, read_toml, resolve, to_toml

State = dict[str, Any]

STEP = "step-"
"""A checkpoint's folder is named by this and the steps that were taken."""
LOCK = ".lock"
PART = ".part"
"""Ending of what is still being written, or whose writing was cut short."""


class RunFolder:
    """Paths, and writing that is all or nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._is_new = False
        self.ledgers = self.path / "ledgers"
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.report = self.path / "report.html"

    @classmethod
    def new(cls, path: str | Path) -> RunFolder:
        """A folder for a new run; nothing is written yet."""
        run = cls(path)
        if (run.path / "config.toml").exists():
            raise InputError(f"{path}: holds a run already; take it up with --resume, or give another --out")
        if run.path.exists() and not run.path.is_dir():
            raise InputError(f"{path}: is a file; --out names a folder")
        if run.path.exists() and not all(_of_a_beginning(entry) for entry in run.path.iterdir()):
            raise InputError(f"{path}: is not empty, and what is in it is not ours; give another --out")
        run._is_new = True
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Take up a run that was started before."""
        run = cls(path)
        if not (run.path / "config.toml").is_file():
            raise InputError(f"{path}: holds no run (there is no config.toml in it)")
        return run

    def config(self) -> TrainConfig:
        file = self.path / "config.toml"
        return resolve(read_toml(file), place=str(file))

    @contextmanager
    def begin(self, config: TrainConfig) -> Iterator[None]:
        """Take the run for this process, write down the settings, and clear away what a killed process left.

        Raises InputError when another process has begun or taken up a run in the folder meanwhile.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / LOCK)  # the system lets go of it however this process ends
        try:
            held = lock.acquire(timeout=0)
        except Timeout as error:
            raise InputError(f"{self.path}: another process is training here; wait for it, or end it") from error
        with held:
            if self._is_new and (self.path / "config.toml").exists():
                raise InputError(f"{self.path}: another run has just begun here; give another --out")
            self._is_new = False
            write_atomically(self.path / "config.toml", to_toml(config).encode())
            self._clear()
            self.checkpoints.mkdir(exist_ok=True)
            self.ledgers.mkdir(exist_ok=True)
            yield

    def _clear(self) -> None:
        """Remove what was being written, and checkpoints that a newer one has replaced."""
        for folder in (self.path, self.ledgers, self.checkpoints):
            for left in folder.glob(f"*{PART}"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        newest = self._newest()
        for other in self.checkpoints.glob(f"{STEP}*"):
            if other != newest:
                shutil.rmtree(other)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Add a row to metrics.jsonl or timings.jsonl, NaN and inf as null; it is on disk when this returns."""
        row = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
        }
        path = self.path / name
        before = path.stat().st_size if path.exists() else 0
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if path.exists():
                os.truncate(path, before)
            raise not_written(path, error) from error

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        return [row for _, row in read_rows(path)] if path.exists() and path.stat().st_size else []

    def keep_steps_before(self, step: int) -> None:
        """Drop what was logged from `step` on (and a line cut short): those steps are run again."""
        for name in ("metrics.jsonl", "timings.jsonl"):
            path = self.path / name
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
            kept = [line for line in lines if line.endswith("\n") and _step_of(line, path) < step]
            write_atomically(path, "".join(kept).encode())

    def write_evaluation(self, when: str, evaluation: dict[str, Any]) -> None:
        content = self.evaluations() | {when: evaluation}
        write_atomically(self.path / "evaluations.json", (json.dumps(content, indent=1) + "\n").encode())

    def evaluations(self) -> dict[str, Any]:
        path = self.path / "evaluations.json"
        if not path.exists():
            return {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path}: not JSON ({error}); without this file the tests are run again") from error
        if not isinstance(found, dict):
            raise InputError(f"{path}: expected an object; without this file the tests are run again")
        return found

    def save_checkpoint(self, step: int, state: State, save_model: Callable[[Path], None]) -> None:
        """Write a checkpoint under another name, move it into place, and only then drop the older ones."""
        target = self.checkpoints / f"{STEP}{step:06d}"

        def write(folder: Path) -> None:
            save_model(folder)
            with open(folder / "state.pt", "wb") as file:  # torch opens files so that it cannot say what went wrong
                torch.save(state, file)

        self._write_folder(target, write)
        self._clear()

    def newest_checkpoint(self) -> tuple[Path, State] | None:
        """The folder of the newest whole checkpoint with its state; None when there is none yet."""
        folder = self._newest()
        if folder is None:
            return None
        try:
            state: State = torch.load(folder / "state.pt", weights_only=True)
        except Exception as error:  # torch raises whatever the damaged bytes lead it to
            raise InputError(f"{folder}: the checkpoint is damaged; without this folder the run starts anew") from error
        return folder, state

    def steps_taken(self) -> int:
        """Steps up to the newest checkpoint, by its name: nothing is loaded."""
        folder = self._newest()
        return 0 if folder is None else int(folder.name.removeprefix(STEP))

    def _newest(self) -> Path | None:
        whole = sorted(path for path in self.checkpoints.glob(f"{STEP}*") if path.suffix != PART)
        return whole[-1] if whole else None

    def save_model(self, save_model: Callable[[Path], None]) -> None:
        self._write_folder(self.model, save_model)

    def _write_folder(self, target: Path, write: Callable[[Path], object]) -> None:
        """Write a folder beside the target, then let it take the target's place."""
        beside, before = (target.with_name(f"{target.name}{ending}{PART}") for ending in ("", ".old"))
        try:
            beside.mkdir(parents=True)
            write(beside)
            for path in beside.rglob("*"):
                if path.is_file():
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
        except Exception as error:  # a full disk shows as OSError, RuntimeError or SafetensorError, by the writer
            shutil.rmtree(beside, ignore_errors=True)
            raise not_written(target, error) from error
        if target.exists():
            target.rename(before)
        beside.rename(target)
        shutil.rmtree(before, ignore_errors=True)


def _of_a_beginning(entry: Path) -> bool:
    """Whether it is what a run leaves that was killed before its settings were there."""
    return entry.name == LOCK or (entry.name.startswith(".config.toml.") and entry.suffix == PART)


def _step_of(line: str, path: Path) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: the line {line.strip()[:60]!r} is no row of a log; take it out") from error
