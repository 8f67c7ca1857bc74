"""Being asked to stop (SIGTERM): the step is finished and saved, and the run ends well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """asked: whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Within, SIGTERM asks to stop instead of ending the process; signals reach the main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
