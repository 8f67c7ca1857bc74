"""Tasks from reasoning-gym: problems without end, judged by the dataset's own scorer."""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
import re
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from apportion.errors import InputError, nearest
from apportion.rewards.checkers import last_boxed, last_tagged
from apportion.tasks.problem import Problem

_TRIES = 1000
"""Draws in a row that may all be held-out prompts before `sample` gives up."""
_INTRODUCTION = re.compile(r"(?:the |my )?(?:final )?answer(?: is:?|:)\s*(.*?)\.?", re.IGNORECASE)
_EXPLOSIVE = re.compile(r"(?:\*\*|\^)[^-+*/]*(?:\*\*|\^)|(?:\*\*|\^)[\s(-]*\d{4}|\d{4}[\s)]*!|![\s)]*!")


class Gym:
    """A dataset of reasoning-gym as a task.

    Training problems are the dataset's first `size` at `seed`. Held-out problems come from another
    seed; a prompt that is among them is never sampled for training. `settings` are the dataset's
    own, such as `max_terms=3` for `chain_sum`.
    """

    def __init__(
        self,
        dataset: str,
        *,
        size: int = 10_000,
        seed: int = 0,
        held_out: int = 64,
        **settings: object,
    ) -> None:
        """Make the task; `held_out` is how many problems are set aside.

        Raises: InputError if reasoning-gym is not installed, for an unknown dataset (with the
        nearest known one), and for settings that the dataset refuses.
        """
        for setting, number in {"size": size, "held_out": held_out}.items():
            if number < 1:
                raise InputError(f"Gym({dataset!r}): {setting} must be at least 1, not {number}.")
        self.name = f"gym:{dataset}"
        self._aside = held_out
        self._training = _dataset(dataset, size=size, seed=seed, **settings)
        # Problem i is made from seed + i, so a seed that is merely one higher would give the same
        # problems again, moved by one.
        self._reserve = _dataset(dataset, size=held_out, seed=seed + size, **settings)
        self._entries: dict[Problem, dict[str, Any]] = {}

    def sample(self, count: int, rng: random.Random) -> list[Problem]:
        """Return training problems, drawn with replacement.

        Raises: InputError if the dataset hardly makes any prompt that is not held out.
        """
        return [self._draw(rng) for _ in range(count)]

    def held_out(self, count: int) -> list[Problem]:
        """Return the first held-out problems: `count`, or all that were set aside."""
        return list(self._reserved.values())[:count]

    def score(self, problem: Problem, response: str) -> float | None:
        """Return what the dataset's scorer gives for the response's final answer.

        The final answer is inside the last `<answer>` tags, else the last box, else the last line
        that is not blank (as many lines as the right answer has, for a grid). Text that the scorer
        cannot read (ValueError) is wrong, 0; any other failure of the scorer gives None.

        Raises: InputError for a problem that this task did not hand out.
        """
        if problem not in self._entries:
            raise InputError(
                f"{self.name} did not hand out the problem {problem.prompt[:80]!r}, so it cannot "
                "judge it. Score problems with the task object that they were sampled from."
            )
        entry = self._entries[problem]
        answer = final_answer(response, lines=problem.answer.count("\n") + 1)
        longest = max(2000, 4 * len(problem.answer))
        if answer != problem.answer and (len(answer) > longest or _EXPLOSIVE.search(answer)):
            return 0.0  # some scorers work out what they read: never let them try 9**9**9
        try:
            score = float(self._training.score_answer(answer, entry))
        except ValueError:
            return 0.0
        except Exception:
            return None
        return score if math.isfinite(score) else None

    @cached_property
    def _reserved(self) -> dict[str, Problem]:
        """Held-out problems by prompt: half of them if the dataset mostly repeats itself."""
        found: dict[str, Problem] = {}
        for index in range(self._aside):
            problem = self._problem(self._reserve[index])
            found.setdefault(problem.prompt, problem)
        repeats = len(found) * 2 < self._aside
        keep = max(1, len(found) // 2) if repeats else len(found)
        return dict(list(found.items())[:keep])

    def _draw(self, rng: random.Random) -> Problem:
        for entry in self._random_entries(rng):
            if entry["question"] not in self._reserved:
                return self._problem(entry)
        raise InputError(
            f"{self.name}: {_TRIES} problems in a row were among the {len(self._reserved)} held "
            "out: the dataset makes too few different prompts. Hold out fewer, or choose settings "
            "that give more."
        )

    def _random_entries(self, rng: random.Random) -> Iterator[dict[str, Any]]:
        for _ in range(_TRIES):
            yield self._training[rng.randrange(len(self._training))]

    def _problem(self, entry: dict[str, Any]) -> Problem:
        """Return the entry as a problem, and keep the entry for the scorer."""
        answer = entry["answer"]  # None where many answers are right and the scorer knows them
        problem = Problem(entry["question"], "" if answer is None else str(answer))
        self._entries.setdefault(problem, entry)
        return problem


def final_answer(response: str, lines: int = 1) -> str:
    r"""Return the final answer of a response; `lines` is how many lines it has without a marker.

    >>> final_answer("2 + 2 is 4.\nThe answer is 4.\n")
    '4'
    """
    tagged = last_tagged(response)
    text = response if tagged is None else tagged
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    if tagged is not None:
        return tagged
    filled = [line for line in text.splitlines() if line.strip()]
    if lines > 1:
        return "\n".join(filled[-lines:])
    last = filled[-1].strip(" \t*") if filled else ""
    introduced = _INTRODUCTION.fullmatch(last)
    return introduced.group(1).strip(" \t*") if introduced else last


def _dataset(name: str, **settings: object) -> Any:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise InputError(
            f"The task gym:{name} needs the package reasoning-gym, which is not installed. "
            'Install it with: pip install "apportion[gym]"'
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on first import, from what reasoning-gym depends on
        reasoning_gym = importlib.import_module("reasoning_gym")
        known = importlib.import_module("reasoning_gym.factory").DATASETS
    if name not in known:
        raise InputError(
            f"reasoning-gym has no dataset named {name!r}{nearest(name, known)} "
            f"It has {len(known)}, such as chain_sum, countdown and spell_backward."
        )
    try:
        return reasoning_gym.create_dataset(name, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise InputError(f"The dataset {name!r} of reasoning-gym refuses its settings {settings!r}: {error}") from error
