"""math-verify in a child process, so that no text can hang, crash or fill the memory of this one.

In this process it could only be bounded by signals, which work on the main thread alone.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from apportion.errors import InputError

LIMIT_S = 5.0
"""Seconds that one comparison of expressions may take before it counts as wrong."""
CHILD = Path(__file__).with_name("math_child.py")


class MathJudge:
    """math-verify in a child process, which ends itself if a comparison takes too long.

    In this process it could only be bounded by signals, which work on the main thread alone.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Let go of the child without ending it: after a fork it belongs to the parent."""
        self._inherited = getattr(self, "_child", None)
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None

    def agree(self, answer: str, response: str) -> bool:
        """Say whether the two texts hold equal expressions; False if that takes too long."""
        with self._lock:
            try:
                child = self._running()
                verdict = _ask(child, json.dumps([LIMIT_S, answer, response]))
            except BaseException:
                self.close()
                raise
            if not verdict:
                self.close()
            return verdict == "1\n"

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
            child.communicate()

    def _running(self) -> subprocess.Popen[str]:
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            if _ask(self._child, None) != "ready\n":
                raise InputError(
                    "math-verify is installed but does not start. "
                    f'To see why, run: {sys.executable} -c "import math_verify"'
                )
        return self._child


def _ask(child: subprocess.Popen[str], line: str | None) -> str:
    """Send one line, if there is one, and return the child's next line; "" if it has ended."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        if line is not None:
            child.stdin.write(line + "\n")
            child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return ""


judge = MathJudge()
atexit.register(judge.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=judge.forget)
