"""Asking the judge of a task, who may raise, return nonsense, or not come back: then an answer stays unscored."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from apportion.errors import InputError
from apportion.tasks.problem import Problem


@dataclass(frozen=True)
class Verdict:
    """score: None = could not be scored. complaint: why the judge failed, if he did."""

    score: float | None
    complaint: str | None = None


def judged(task: Any, asked: Sequence[tuple[Problem, str]], seconds: float) -> list[Verdict]:
    """The judge's verdict on every answer; each may take so many seconds.

    The questions are put one after another in a thread of their own. One that is not answered in time is left behind
    with its thread, which cannot be ended and asks no more; a new thread goes on with the next.
    """
    verdicts: list[Verdict] = []
    while len(verdicts) < len(asked):
        answers: SimpleQueue[Verdict] = SimpleQueue()
        left = asked[len(verdicts) :]
        given_up = threading.Event()
        threading.Thread(target=_answer, args=(task, left, answers, given_up), daemon=True).start()
        for _ in left:
            try:
                verdicts.append(answers.get(timeout=seconds))
            except Empty:
                given_up.set()
                verdicts.append(Verdict(None, f"the judge did not answer within {seconds:g} s"))
                break
    return verdicts


def _answer(
    task: Any, asked: Sequence[tuple[Problem, str]], answers: SimpleQueue[Verdict], given_up: threading.Event
) -> None:
    for problem, response in asked:
        if given_up.is_set():
            return
        try:
            answers.put(Verdict(task.score(problem, response)))
        except InputError as error:
            answers.put(Verdict(None, str(error)))
        except Exception as error:  # whatever a judge of the user's own may raise
            answers.put(Verdict(None, f"the judge raised {type(error).__name__}: {error}"))


def refuse_if_all_failed(verdicts: Sequence[Verdict]) -> None:
    """Raise InputError with the first complaint where the judge failed on everything."""
    found = [verdict.complaint for verdict in verdicts if verdict.complaint is not None]
    if found and len(found) == len(verdicts):
        raise InputError(f"not one of {len(verdicts)} answers could be judged; the first: {found[0]}")
