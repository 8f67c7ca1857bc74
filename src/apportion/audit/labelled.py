"""Files of answers in which people marked the first wrong step.

What a row is, is seen by its fields:

| data set | steps | first wrong step | reference answer |
|---|---|---|---|
| MR-GSM8K | `model_output_steps` | `model_output_solution_first_error_step`, from 1 | `ground_truth_answer` |
| BIG-Bench Mistake | `steps` | `mistake_index`, from 0; null = none | `target` |
| PRMBench | `modified_process` | the least of `error_steps`, from 1; empty = none | last of `original_process` |
| ProcessBench | `steps` | `label`, from 0; -1 = none | `answer`, if there |
| labelled steps | `steps` | `first_error`, from 0; null = none | `answer`, if there |

The truth is the label's: an answer is worth 1 until its first wrong step and 0 from there on. So the outcome is 1 where
no step is wrong, whatever the last line says, and else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.audit.subject import NONE
from apportion.errors import InputError, nearest
from apportion.files import Row, read_rows

SCORES = ("step_scores", "prm_scores", "scores", "step_values")
"""Fields of step scores, the first that is there unless told."""


@dataclass(frozen=True)
class Labelled:
    """An answer with its label. scores: of its steps; before the first too, where there is one more of them."""

    prompt: str
    steps: tuple[str, ...]
    key: int
    reference: str | None = None
    scores: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Format:
    """How a data set writes an answer. label: the field by which it is known, and the reader of its first error.

    lead: words that lead over to the reference answer.
    """

    name: str
    prompt: str
    steps: str
    label: str
    first: int
    reference: str
    lead: str = "\nSo the answer is"


FORMATS = (
    Format(
        "MR-GSM8K", "question", "model_output_steps", "model_output_solution_first_error_step", 1, "ground_truth_answer"
    ),
    Format("BIG-Bench Mistake", "input", "steps", "mistake_index", 0, "target"),
    Format("PRMBench", "modified_question", "modified_process", "error_steps", 1, "original_process", lead=""),
    Format("ProcessBench", "problem", "steps", "label", 0, "answer"),
    Format("labelled steps", "prompt", "steps", "first_error", 0, "answer"),
)


def read(path: Path, scores: str | None = None) -> tuple[Format, list[Labelled], list[Row]]:
    """The answers of a file, and its rows as they came. scores: the field of step scores.

    Raises InputError naming the row for one that is of no known kind, of another than the first, or whose label is of
    no step.
    """
    pairs = list(read_rows(path))
    place, first = pairs[0]
    kind = next((kind for kind in FORMATS if kind.label in first and kind.steps in first), None)
    if kind is None:
        labels = [f"{kind.label} ({kind.name})" for kind in FORMATS]
        raise InputError(f"{place}: no field says which step is the first wrong one; looked for {', '.join(labels)}")
    if scores is None:
        scores = next((name for name in SCORES if name in first), None)
    elif scores not in first:
        raise InputError(f"{place}: there is no field {scores!r}{nearest(scores, first)}")
    return kind, [_labelled(row, kind, scores, place) for place, row in pairs], [row for _, row in pairs]


def _labelled(row: Row, kind: Format, scores: str | None, place: str) -> Labelled:
    for name in (kind.steps, kind.label):
        if name not in row:
            raise InputError(f"{place}: the field {name} is missing, which {kind.name} has")
    steps = row[kind.steps]
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise InputError(f"{place}: {kind.steps} is {steps!r:.60}; expected a list of at least one text")
    return Labelled(
        prompt=str(row.get(kind.prompt, "")),
        steps=tuple(steps),
        key=_key(row[kind.label], kind, len(steps), place),
        reference=_reference(row.get(kind.reference)),
        scores=None if scores is None else _scores(row.get(scores), scores, len(steps), place),
    )


def _key(label: Any, kind: Format, steps: int, place: str) -> int:
    """From 0; `NONE` where no step is wrong."""
    if isinstance(label, list):
        label = min(label, default=None)
    if label is None or label == -1:
        return NONE
    if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label - kind.first < steps:
        raise InputError(
            f"{place}: {kind.label} is {label!r}; expected a step from {kind.first} to {steps - 1 + kind.first}"
        )
    return label - kind.first


def _reference(entry: Any) -> str | None:
    """The last of a list, such as of a right solution's steps."""
    last = entry[-1] if isinstance(entry, list) and entry else entry
    return None if last is None or last == [] else str(last).strip() or None


def _scores(entry: Any, name: str, steps: int, place: str) -> tuple[float, ...]:
    numbers = isinstance(entry, list) and all(isinstance(score, int | float) and score == score for score in entry)
    if not numbers or len(entry) not in (steps, steps + 1):
        raise InputError(
            f"{place}: {name} is {entry!r:.60}; expected {steps} numbers, one a step, or one more for before the first"
        )
    return tuple(float(score) for score in entry)


def sampled(answers: Sequence[Labelled], most: int | None) -> Callable[[Sequence[Any]], list[Any]]:
    """Chooses `most` of the answers, spread evenly over the file: of whatever has an entry an answer."""
    count = len(answers)
    kept = range(count) if most is None or most >= count else [i * count // most for i in range(most)]
    return lambda entries: [entries[i] for i in kept]
