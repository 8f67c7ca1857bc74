"""Findings: what ails a run, how sure that is to be the trouble, and where it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""error: the run is wrong, or does not learn for this reason. warning: it may well become so. note: worth knowing."""


@dataclass(frozen=True)
class Finding:
    """What one check found in a run.

    said: the evidence in a sentence; figures: the same as numbers; steps: from where to where it shows.
    called: the run's own names of the figures looked at. follows: codes of findings of this run that explain this one.
    """

    level: Level
    said: str
    figures: dict[str, float] = field(default_factory=dict)
    steps: tuple[int, int] | None = None
    called: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    code: str = ""

    def __str__(self) -> str:
        where = f" (steps {self.steps[0]} to {self.steps[1]})" if self.steps else ""
        return f"{self.code} {self.level}: {self.said}{where}"
