"""A rollout with its ledger as the page shows it: what a list of answers needs, and apart from it what is drawn.

The first, the entry, is read with the page; the second, the body, only when somebody looks at the answer's group.
None stands for what is not known, which is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from apportion.errors import InputError
from apportion.files import SCHEMA, Row

STEP_COLUMNS = ("reward", "value", "credit", "normalised")
COLOURS = ("advantage", "credit", "reward", "change")
"""What tokens can be coloured by; the page begins with the first that the answers have."""
STRIP = 40
"""Pieces of an answer in its strip."""


@dataclass(frozen=True)
class Answer:
    """One rollout. of: the step of a token, -1 where the policy did not sample it.

    steps: the columns with one entry a step. end_value: what was still expected of an answer that was cut off.
    logprobs: of the sampler. figures: other numbers of the row, such as the scores of each reward function.
    """

    name: str
    group: str
    outcome: Any
    ended: bool
    prompt: int
    id: list[int]
    text: list[str] | None
    of: list[int]
    advantage: list[Any] | None
    steps: dict[str, list[Any] | None]
    end_value: Any
    logprobs: list[Any] | None
    figures: dict[str, Any]

    @property
    def credited(self) -> bool:
        return self.advantage is not None and any(a is not None for a in self.advantage)

    @property
    def count(self) -> int:
        return max(self.of, default=-1) + 1

    @property
    def size(self) -> float:
        """Mean |advantage| of the sampled tokens."""
        sizes = [abs(a) for a in self.advantage or () if a is not None]
        return sum(sizes) / len(sizes) if sizes else 0.0

    def changes(self) -> list[Any] | None:
        """By how much the value changed in each step; after the last, by what is still expected, if that is known."""
        values = self.steps["value"]
        if values is None or None in values:
            return None
        after = [*values[1:], None if self.ended else self.end_value]
        return [None if b is None else number(b - a) for a, b in zip(values, after, strict=True)] if values else []

    def drop(self) -> Any:
        """The deepest fall in one step: of credit, or where there is none of the value; None = neither is known."""
        falls = self.steps["credit"] if self.steps["credit"] is not None else self.changes()
        known = [fall for fall in falls or () if fall is not None]
        return min(0, *known) if known else None

    def colour(self, name: str) -> list[Any] | None:
        """The entry of every token in a column that tokens are coloured by."""
        if name == "advantage":
            return self.advantage
        steps = self.changes() if name == "change" else self.steps[name]
        return None if steps is None else [steps[k] if k >= 0 else None for k in self.of]

    def entry(self, group: int, strip: str | None) -> Row:
        """What the list of answers needs."""
        sampled = sum(k >= 0 for k in self.of)
        return {
            "name": self.name,
            "group": group,
            "outcome": self.outcome,
            "ended": self.ended,
            "tokens": sampled,
            "steps": self.count,
            "drop": self.drop(),
            "size": number(self.size) if self.credited else None,
            "strip": strip,
        } | ({"figures": self.figures} if self.figures else {})

    def body(self, skip: int) -> Row:
        """What is drawn; skip: the tokens of the prompt that the group shares."""
        columns = {name: column for name, column in self.steps.items() if column is not None}
        return {
            "id": self.id[skip:],
            "text": None if self.text is None else self.text[skip:],
            "of": runs(self.of[skip:]),
            "advantage": None if self.advantage is None else runs(self.advantage[skip:]),
            "logprobs": None if self.logprobs is None else self.logprobs[skip:],
            "prompt": self.prompt - skip,
            "end": self.end_value,
            "steps": columns,
        }


def answer_of(row: Row, place: str) -> Answer:
    """The answer of a row of a rollout file with token ids; its credit is what `ledger` holds.

    Raises InputError where a column has not one entry a token, or one a step.
    """
    version = row.get("schema", SCHEMA)
    if version != SCHEMA:
        raise InputError(f"{place}: schema {version!r} is unknown; this version reads schema {SCHEMA}")
    prompt, response, ledger = row.get("prompt") or [], row.get("response") or [], row.get("ledger") or {}
    ids = [*prompt, *response]
    mask = row.get("action_mask") or [True] * len(response)
    sampled = [-1] * len(prompt) + [0 if taken else -1 for taken in mask]
    step_of = _fitting(ledger.get("step_of") or sampled, len(ids), "step_of", place)
    spans, text, logprobs = row.get("offsets"), row.get("text"), row.get("token_logprobs")
    parts = {f"part {name}": part for name, part in (ledger.get("parts") or {}).items()}
    steps = {name: ledger.get(name) for name in STEP_COLUMNS} | (parts if len(parts) > 1 else {})
    count = max(step_of, default=-1) + 1
    return Answer(
        name=str(row.get("id", "")),
        group=str(row.get("group")),
        outcome=number(row.get("outcome")),
        ended=bool(row.get("ended", True)),
        prompt=len(prompt),
        id=ids,
        text=None if text is None or not spans else pieces(str(text), _fitting(spans, len(ids), "offsets", place)),
        of=step_of,
        advantage=_numbers(ledger.get("advantage"), len(ids), "advantage", place),
        steps={name: _numbers(column, count, name, place) for name, column in steps.items()},
        end_value=number(row.get("end_value")),
        logprobs=_numbers(logprobs and [None] * len(prompt) + logprobs, len(ids), "token_logprobs", place),
        figures=row.get("figures") or {},
    )


def limits(answers: Sequence[Answer]) -> dict[str, float]:
    """For each column that there is, the size of full colour, both ways: nearly all lies within. 0 = all are 0."""
    found = {}
    for name in COLOURS:
        columns = [column for answer in answers if (column := answer.colour(name)) is not None]
        if any(entry is not None for column in columns for entry in column):
            found[name] = _limit(entry for column in columns for entry in column)
    return found


def strip_of(entries: Sequence[Any], limit: float) -> str:
    """The largest entry of each piece of an answer as a letter: A = full blame, M = 0, Y = full credit.

    >>> strip_of([0.5, None, -1.0, 1.0], 1.0)
    'SMAY'
    """
    count = min(STRIP, len(entries))
    cuts = [round(n * len(entries) / count) for n in range(count + 1)] if count else []
    peaks = [max((e for e in entries[a:b] if e is not None), key=abs, default=0) for a, b in pairwise(cuts)]
    shares = [peak / limit if limit else 0.0 for peak in peaks]
    return "".join(chr(ord("M") + round(12 * max(-1.0, min(1.0, share)))) for share in shares)


def runs(entries: Iterable[Any]) -> list[Any]:
    """Equal neighbours once, each with how many there are.

    >>> runs([0, 0, 0, 1, None])
    [0, 3, 1, 1, None, 1]
    """
    return [part for entry, same in groupby(entries) for part in (entry, sum(1 for _ in same))]


def number(entry: Any) -> float | int | None:
    """A number short enough for a page; None for NaN and for what is not a number."""
    if not isinstance(entry, int | float) or not _finite(entry):
        return None
    short = float(f"{entry:.4g}") if abs(entry) < 1e4 else round(entry)
    return int(short) if short == int(short) else short


def pieces(text: str, spans: list[Any]) -> list[str]:
    """The text of every token. A character of several tokens goes to the last; one of none, to the token after it."""
    starts = [*(int(start) for start, _ in spans[1:]), len(text)]
    cuts = [0]
    for (_, end), following in zip(spans, starts, strict=True):
        cuts.append(max(cuts[-1], min(int(end), following)))
    return [text[start:end] for start, end in pairwise(cuts)]


def _limit(entries: Iterable[Any]) -> float:
    sizes = sorted(abs(entry) for entry in entries if entry)
    if not sizes:
        return 0.0
    size = sizes[min(len(sizes) - 1, math.ceil(0.99 * len(sizes)))]
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return float(f"{math.ceil(round(size / unit, 6)) * unit:.2g}")


def _numbers(column: list[Any] | None, length: int, name: str, place: str) -> list[Any] | None:
    return None if column is None else [number(x) for x in _fitting(column, length, name, place)]


def _fitting(column: list[Any], length: int, name: str, place: str) -> list[Any]:
    if len(column) != length:
        raise InputError(f"{place}: {name} has {len(column)} entries where {length} were expected")
    return column


def _finite(entry: int | float) -> bool:
    try:
        return math.isfinite(entry)
    except OverflowError:  # a whole number that no float holds
        return False
