"""The figures of every step in TensorBoard, W&B or trackio as well, by way of Accelerate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apportion.errors import InputError


class Trackers:
    """Told the figures of every step, under the names that they have in metrics.jsonl."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        from accelerate.utils import imports

        missing = [name for name in names if not getattr(imports, f"is_{name}_available")()]
        if missing:
            raise InputError(f"tracker {missing[0]} is not installed: pip install {missing[0]}")
        self._names, self._folder = names, folder
        self._open: list[Any] = []

    @contextmanager
    def watching(self, settings: dict[str, Any]) -> Iterator[None]:
        """Within, the trackers of a run with these settings are open."""
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        told = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in settings.items()
        }
        for name in self._names:
            made = LOGGER_TYPE_TO_CLASS[name]
            place = {"logging_dir": self._folder} if made.requires_logging_directory else {}
            own = {"dir": str(self._folder), "name": self._folder.name} if name == "wandb" else {}
            tracker = made("apportion", **place, **own)
            if hasattr(tracker, "start"):
                tracker.start()
            tracker.store_init_configuration(told)
            self._open.append(tracker)
        try:
            yield
        finally:
            for tracker in self._open:
                tracker.finish()

    def stepped(self, step: int, *rows: dict[str, Any]) -> None:
        """Tell the numbers of a step."""
        numbers = {
            name: value
            for row in rows
            for name, value in row.items()
            if isinstance(value, int | float) and name != "step"
        }
        for tracker in self._open:
            tracker.log(numbers, step=step)
