"""A row of a rollout file, and the `Rollout` that it stands for.

A row that came without token ids is cut into words, so that credit has something to sit on. Such words get negative
ids: they are never mistaken for the ids of a tokenizer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from apportion.errors import InputError
from apportion.files.storage import Row, read_rows, write_rows
from apportion.rollouts import Rollout, Rollouts, collate

SCHEMA = 1

_WORD = re.compile(r"[^\S\n]*(?:\w+|[^\w\s]|\n)|[^\S\n]+")
_INT64 = range(-(2**63), 2**63)


def load(path: str | Path) -> Rollouts:
    """Read rollouts from a .jsonl or .parquet file; outcomes are kept in float64, as they were written.

    Raises InputError naming the line, what came and what was expected.
    """
    words: dict[str, int] = {}
    rows = [_rollout(row, place, words) for place, row in read_rows(path)]
    return collate(rows, dtype=torch.float64)


def save(rollouts: Rollouts, path: str | Path) -> None:
    """Write rollouts so that `load` gives them back; a group that is neither text nor a whole number becomes text."""
    write_rows(path, [row_of(rollout) for rollout in rollouts.rows()])


def row_of(rollout: Rollout) -> Row:
    """The row that stands for a rollout: prompt and response as token ids, split at the first sampled token."""
    sampled = [bool(a) for a in rollout.action_mask]
    start = sampled.index(True) if True in sampled else len(sampled)
    row: Row = {
        "schema": SCHEMA,
        "id": rollout.id,
        "group": rollout.group if isinstance(rollout.group, str | int) else str(rollout.group),
        "prompt": list(rollout.tokens[:start]),
        "response": list(rollout.tokens[start:]),
        "action_mask": sampled[start:],
        "outcome": rollout.outcome,
        "ended": rollout.ended,
        "turns": _list(rollout.turns),
        "text": rollout.text,
        "offsets": None if rollout.offsets is None else [list(span) for span in rollout.offsets],
        "token_logprobs": None
        if rollout.logprobs is None
        else [p if a else None for a, p in zip(sampled[start:], rollout.logprobs[start:], strict=True)],
        "step_rewards": _list(rollout.step_rewards),
        "step_values": _list(rollout.step_values),
    }
    return {name: value for name, value in row.items() if value is not None or name == "outcome"}


@dataclass
class _Tokens:
    """The tokens of a row as they are put together; `text` is None once ids without text came in."""

    words: dict[str, int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    text: str | None = ""
    turn: int = 0

    def new_turn(self) -> None:
        self.turn = self.turns[-1] + 1 if self.turns else 0

    def add_ids(self, ids: Sequence[int], *, sampled: bool) -> None:
        self.text = None
        self._extend(ids, sampled)

    def add_text(self, text: str, *, sampled: bool) -> None:
        start = len(self.text or "")
        pieces = list(_WORD.finditer(text))
        self.offsets += [(start + piece.start(), start + piece.end()) for piece in pieces]
        self._extend([self.words.setdefault(p.group(), -1 - len(self.words)) for p in pieces], sampled)
        if self.text is not None:
            self.text += text

    def _extend(self, ids: Sequence[int], sampled: bool) -> None:
        self.ids += ids
        self.sampled += [sampled] * len(ids)
        self.turns += [self.turn] * len(ids)


def _rollout(row: Row, place: str, words: dict[str, int]) -> Rollout:
    row = {name: entry for name, entry in row.items() if entry is not None or name == "outcome"}
    version = row.get("schema", SCHEMA)
    if version != SCHEMA:
        raise InputError(f"{place}: schema {version!r} is unknown; this version reads schema {SCHEMA}")
    for name in ("response", "outcome", "group"):
        if name not in row:
            raise InputError(f"{place}: the field {name!r} is missing; the row has {', '.join(row) or 'no field'}")
    tokens = _Tokens(words)
    _add(tokens, row.get("prompt", ""), "prompt", place)
    prompt = len(tokens.ids)
    _add(tokens, row["response"], "response", place)
    group = row["group"]
    if not isinstance(group, str | int) or isinstance(group, bool):
        raise InputError(f"{place}: group is {group!r}; expected a string or a whole number")
    mask = _mask(row, tokens.sampled, prompt, place)
    text, offsets = _text(row, tokens, place)
    return Rollout(
        tokens=tokens.ids,
        action_mask=mask,
        group=group,
        outcome=_outcome(row.get("outcome"), place),
        ended=_flag(row.get("ended", True), "ended", place),
        id=str(row.get("id", "")),
        text=text,
        turns=_turns(row, tokens.turns, place),
        logprobs=_logprobs(row, mask, prompt, place),
        offsets=offsets,
        step_rewards=_scores(row, "step_rewards", place),
        step_values=_scores(row, "step_values", place),
    )


def _add(tokens: _Tokens, part: Any, name: str, place: str) -> None:
    """Add a prompt or response: text, token ids, or chat messages (of which the assistant's were sampled)."""
    sampled = name == "response"
    tokens.new_turn()
    if part == []:
        return
    if isinstance(part, str):
        tokens.add_text(part, sampled=sampled)
    elif isinstance(part, list) and all(type(token) is int and token in _INT64 for token in part):
        tokens.add_ids(part, sampled=sampled)
    elif isinstance(part, list) and all(isinstance(message, dict) for message in part):
        for message in part:
            tokens.new_turn()
            text = _message_text(message, place)
            tokens.add_text(text, sampled=sampled and message.get("role") == "assistant")
            tokens.add_text("\n", sampled=False)
    else:
        raise InputError(f"{place}: {name} must be text, a list of token ids or a list of chat messages")


def _message_text(message: dict[str, Any], place: str) -> str:
    if "role" not in message:
        raise InputError(f"{place}: a chat message has no role; it has {', '.join(message) or 'no field'}")
    text = message.get("content") or ""
    if isinstance(text, list):
        text = "".join(part if isinstance(part, str) else _part_text(part, place) for part in text)
    calls = message.get("tool_calls") or []
    if not isinstance(text, str) or not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InputError(f"{place}: a chat message must have text as its content and a list of objects as tool_calls")
    functions = [call.get("function") or call for call in calls]
    thought = message.get("reasoning_content") or ""
    parts = [str(thought), text, *(_call_text(function, place) for function in functions)]
    return "\n".join(part for part in parts if part)


def _part_text(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise InputError(f"{place}: a part of a chat message's content is {part!r}; expected text or an object")
    return str(part.get("text") or "")


def _call_text(function: Any, place: str) -> str:
    if not isinstance(function, dict) or "name" not in function:
        raise InputError(f"{place}: a tool call has no function name")
    arguments = function.get("arguments") or ""
    return f"{function['name']}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"


def _mask(row: Row, sampled: list[bool], prompt: int, place: str) -> list[bool]:
    given = _column(row, "action_mask", len(sampled) - prompt, place)
    if given is None:
        return sampled
    return [False] * prompt + [_flag(a, f"action_mask[{n}]", place) for n, a in enumerate(given)]


def _flag(given: Any, name: str, place: str) -> bool:
    if not (isinstance(given, bool) or (isinstance(given, int) and given in (0, 1))):
        raise InputError(f"{place}: {name} is {given!r}; expected true or false")
    return bool(given)


def _turns(row: Row, made: list[int], place: str) -> list[int]:
    given = _column(row, "turns", len(made), place)
    if given is None:
        return made
    for n, turn in enumerate(given):
        if type(turn) is not int or turn not in _INT64:
            raise InputError(f"{place}: turns[{n}] is {turn!r}; expected a whole number")
    return given


def _text(row: Row, tokens: _Tokens, place: str) -> tuple[str | None, list[tuple[int, int]] | None]:
    """The text of the row with a span of it for each token: as given, or as the words were cut."""
    if "text" not in row or "offsets" not in row:
        return tokens.text, None if tokens.text is None else tokens.offsets
    text = row["text"]
    if not isinstance(text, str):
        raise InputError(f"{place}: text is {type(text).__name__}; expected a string")
    spans = _column(row, "offsets", len(tokens.ids), place) or []
    for n, span in enumerate(spans):
        whole = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
        if not whole or not 0 <= span[0] <= span[1] <= len(text):
            raise InputError(
                f"{place}: offsets[{n}] is {span!r}; expected [start, end] within the {len(text)} characters of text"
            )
    return text, [(start, end) for start, end in spans]


def _outcome(outcome: Any, place: str) -> float | None:
    if outcome is None:
        return None
    if not isinstance(outcome, int | float):
        raise InputError(f"{place}: outcome is {outcome!r}; expected a number, or null for not scored")
    if not _finite(outcome):
        raise InputError(f"{place}: outcome is {outcome}; expected a finite number, or null for not scored")
    return float(outcome)


def _scores(row: Row, name: str, place: str) -> tuple[float, ...] | None:
    scores = row.get(name)
    if scores is None:
        return None
    if not isinstance(scores, list):
        raise InputError(f"{place}: {name} must be a list of numbers, one a step or one a sampled token")
    for k, score in enumerate(scores):
        if not isinstance(score, int | float) or not _finite(score):
            raise InputError(f"{place}: {name}[{k}] is {score!r}; expected a finite number")
    return tuple(float(score) for score in scores)


def _finite(number: int | float) -> bool:
    """Whether float64 can hold it; JSON may have whole numbers of any length."""
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def _logprobs(row: Row, mask: list[bool], prompt: int, place: str) -> list[float] | None:
    given = _column(row, "token_logprobs", len(mask) - prompt, place)
    if given is None:
        return None
    for n, (sampled, logprob) in enumerate(zip(mask[prompt:], given, strict=True)):
        if sampled and not (isinstance(logprob, int | float) and _finite(logprob) and logprob <= 1e-4):
            raise InputError(f"{place}: token_logprobs[{n}] is {logprob!r}; expected a number of at most 0")
    return [
        float(logprob) if sampled else math.nan
        for sampled, logprob in zip(mask, [math.nan] * prompt + given, strict=True)
    ]


def _column(row: Row, name: str, length: int, place: str) -> list[Any] | None:
    column = row.get(name)
    if column is None:
        return None
    if not isinstance(column, list) or len(column) != length:
        came = f"{len(column)} entries" if isinstance(column, list) else type(column).__name__
        raise InputError(f"{place}: {name} has {came} for {length} tokens")
    return column


def _list(entries: Sequence[Any] | None) -> list[Any] | None:
    return None if entries is None else list(entries)
