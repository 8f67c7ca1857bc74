"""The figures of every step in TensorBoard, W&B or trackio as well, by way of Accelerate."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.files import write_atomically


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
            try:
                tracker = made("apportion", **place, **self._known_by(name))
                if hasattr(tracker, "start"):
                    tracker.start()
                tracker.store_init_configuration(told)
            except Exception as error:  # whatever a package raises that is too old, or whose server is not there
                raise InputError(f"tracker {name} could not be opened: {error or type(error).__name__}") from error
            self._open.append(tracker)
        try:
            yield
        finally:
            for tracker in self._open:
                tracker.finish()

    def _known_by(self, name: str) -> dict[str, Any]:
        """What a tracker that keeps many runs knows this one by, from when it is begun until it is taken up again."""
        if name not in ("wandb", "trackio"):
            return {}
        file = self._folder / ".tracked-as"
        if not file.exists():
            write_atomically(file, secrets.token_hex(4).encode())
        known_as = file.read_text(encoding="utf-8")
        if name == "wandb":
            return {"dir": str(self._folder), "name": self._folder.name, "id": known_as, "resume": "allow"}
        return {"name": f"{self._folder.name}-{known_as}", "resume": "allow"}

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
