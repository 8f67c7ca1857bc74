"""Console logs of verl: lines that hold `step:3 - actor/entropy:0.41 - ...`, whatever stands before them."""

from __future__ import annotations

import re
from pathlib import Path

from apportion.doctor.history import History
from apportion.errors import InputError

LINE = re.compile(r"step:(\d+) - (\S+:.*)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NUMPY = re.compile(r"np\.\w+\((.*)\)$")
"""As NumPy 2 prints a number."""


def of_log(text: str, path: Path) -> History:
    """Make a history of the lines that hold figures. Raises InputError where none does."""
    rows = []
    for line in COLOUR.sub("", text).splitlines():
        found = LINE.search(line)
        if found:
            rows.append({"step": int(found[1])} | _figures(found[2]))
    if not rows:
        raise InputError(f"{path}: no line holds figures as verl prints them, `step:1 - actor/entropy:0.4 - ...`")
    return History.of_rows(rows, "verl console log")


def _figures(text: str) -> dict[str, float]:
    figures = {}
    for entry in text.split(" - "):
        name, _, number = entry.rpartition(":")
        try:
            figures[name.strip()] = float(NUMPY.sub(r"\1", number.strip()))
        except ValueError:
            continue
    return figures
