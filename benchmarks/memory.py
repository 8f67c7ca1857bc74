"""The most memory that a call takes, as the kernel counts it, in a process of its own (Linux).

The C library is told to hand every larger piece that is freed straight back, and what it still keeps is taken from it
before the call, so that resident memory is what is in use.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SELF = Path("/proc/self")


def peak(call: Callable[[], object]) -> int:
    """Bytes at most during the call beyond those before it. To be asked in a child of `peak_in_child`."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (SELF / "clear_refs").write_text("5")  # forget the highest so far
    before = _status("VmRSS")
    kept = call()
    most = _status("VmHWM")
    del kept
    return most - before


def peak_in_child(script: str, *arguments: str) -> int | None:
    """Run a script that prints what `peak` found; None on a system that does not tell."""
    if not (SELF / "clear_refs").exists():
        return None
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, script, *arguments]
    return int(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout)


def available() -> float:
    """Bytes of memory that are free for us; infinity on a system that does not tell."""
    table = Path("/proc/meminfo")
    return _kilobytes(table, "MemAvailable") * 1024 if table.exists() else float("inf")


def _status(name: str) -> int:
    return _kilobytes(SELF / "status", name) * 1024


def _kilobytes(table: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in table.read_text().splitlines() if line.startswith(f"{name}:"))
