"""What a task is: problems to ask and a judge for the answers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Problem:
    """One prompt and the answer that the judge compares with."""

    prompt: str
    answer: str


@runtime_checkable
class Task(Protocol):
    """Problems without end, a fixed held-out set, and a judge.

    `score` gives the outcome of a whole answer; `None` means that it could not be scored,
    which is not the same as a score of zero.
    """

    @property
    def name(self) -> str: ...

    def sample(self, count: int, rng: random.Random) -> list[Problem]: ...

    def held_out(self, count: int) -> list[Problem]: ...

    def score(self, problem: Problem, response: str) -> float | None: ...
