"""The task of a JSONL file: prompts with their answers, and a checker that judges."""

from __future__ import annotations

import json
import math
import random
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InputError
from apportion.files import Row, read_rows
from apportion.rewards.checkers import Checker, math_equal
from apportion.tasks.problem import Problem

PROMPT_FIELDS = ("prompt", "question", "problem")
"""Where a row's prompt is looked for, in this order."""
ANSWER_FIELDS = ("answer", "ground_truth", "solution")
"""Where a row's answer is looked for, in this order: short answers before worked solutions."""

_LAST_LINE_ANSWER = re.compile(r"(?:\A|\n)####[ \t]*(\S[^\n]*)\Z")


@dataclass(frozen=True)
class Prompts:
    """Problems read from a JSONL file; `load` makes one.

    `training` and `reserved` (the held-out problems) share no prompt, unless the file holds only
    one prompt.
    """

    name: str
    training: tuple[Problem, ...]
    reserved: tuple[Problem, ...]
    check: Checker

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        check: Checker = math_equal,
        held_out: int | None = None,
        seed: int = 0,
    ) -> Prompts:
        """Read a JSONL file, one problem a line, and set held-out prompts aside.

        A row is an object with a prompt (`prompt`, `question` or `problem`: text) and an answer
        (`answer`, `ground_truth` or `solution`: text or number). Of an answer that ends in a line
        `#### 18`, as in GSM8K, what follows `####` counts. `held_out` is how many prompts are set
        aside: by default a tenth of them, at least one and at most 512. The same file, `seed` and
        number set the same prompts aside. Blank lines are skipped.

        Raises: InputError with the path and the line for a file or row that cannot be used.
        """
        path = Path(path)
        problems = [_problem(row, where) for where, row in read_rows(path)]
        prompts = list(dict.fromkeys(problem.prompt for problem in problems))
        if len(prompts) == 1:
            warnings.warn(
                f"{path} holds only one prompt: it is trained on and held out as well, so the "
                "held-out score says nothing about other prompts.",
                stacklevel=2,
            )
            return cls(path.stem, tuple(problems), tuple(problems), check)
        count = _held_out_count(held_out, len(prompts), path)
        random.Random(seed).shuffle(prompts)
        aside = set(prompts[len(prompts) - count :])
        training = tuple(problem for problem in problems if problem.prompt not in aside)
        reserved = tuple(problem for problem in problems if problem.prompt in aside)
        return cls(path.stem, training, reserved, check)

    def sample(self, count: int, rng: random.Random) -> list[Problem]:
        """Return training problems: none twice before each was drawn once, within one call."""
        drawn: list[Problem] = []
        while len(drawn) < count:
            drawn += rng.sample(self.training, min(count - len(drawn), len(self.training)))
        return drawn

    def held_out(self, count: int) -> list[Problem]:
        """Return the first held-out problems in the file's order: `count`, or all there are."""
        return list(self.reserved[:count])

    def score(self, problem: Problem, response: str) -> float | None:
        """Return what the checker says of the response."""
        return self.check(response, problem.answer)


def _held_out_count(asked: int | None, prompts: int, path: Path) -> int:
    if asked is None:
        return max(1, min(prompts // 10, 512))
    if not 0 <= asked < prompts:
        raise InputError(
            f"{path}: {asked} prompts were to be held out of {prompts}. "
            f"Hold out (held_out) 0 to {prompts - 1}, so that at least one is left to train on."
        )
    return asked


def _problem(row: Row, where: str) -> Problem:
    prompt_field = _present(row, PROMPT_FIELDS, "prompt", where)
    answer_field = _present(row, ANSWER_FIELDS, "answer", where)
    prompt = row[prompt_field]
    if not isinstance(prompt, str):
        raise InputError(f"{where}: {prompt_field!r} must be text; found {_kind(prompt)}.")
    if not prompt.strip():
        raise InputError(f"{where}: {prompt_field!r} is empty. Fill it in, or drop the line.")
    return Problem(prompt, _answer(row[answer_field], answer_field, where))


def _present(row: dict[str, object], fields: tuple[str, ...], what: str, where: str) -> str:
    for field in fields:
        if field in row:
            return field
    looked_for = " or ".join(map(repr, fields))
    found = ", ".join(map(repr, row)) or "none"
    raise InputError(f"{where}: no {what}. Looked for {looked_for}; the row's fields: {found}.")


def _answer(value: object, field: str, where: str) -> str:
    not_finite = isinstance(value, float) and not math.isfinite(value)
    if not_finite or isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{where}: {field!r} must be text or a finite number; found {_kind(value)}.")
    text = str(value).strip()
    marked = _LAST_LINE_ANSWER.search(text)
    if not text or text.endswith("####"):
        raise InputError(f"{where}: {field!r} holds no answer: {text[-40:]!r}. Fill it in, or drop the line.")
    return marked.group(1).strip() if marked else text


def _kind(value: object) -> str:
    """Return what a JSON value is, with the value itself if it is a plain one."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return f"the value {json.dumps(value)}"
