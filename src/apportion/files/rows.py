"""A row of a rollout file, and the `Rollout` that it stands for.

A row that came without token ids is cut into words, so that credit has something to sit on. Such words get negative
ids: they are never mistaken for the ids of a tokenizer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.files.storage import Row, read_rows, write_rows
from apportion.rollouts import Rollout, Rollouts, collate

SCHEMA = 1

_WORD = re.compile(r"[^\S\n]*(?:\w+|[^\w\s])|\n|\s+")


def load(path: str | Path) -> Rollouts:
    """Read rollouts from a .jsonl or .parquet file.

    Raises InputError naming the line, what came and what was expected.
    """
    words: dict[str, int] = {}
    return collate([_rollout(row, place, words) for place, row in read_rows(path)])


def save(rollouts: Rollouts, path: str | Path) -> None:
    """Write rollouts so that `load` gives them back."""
    write_rows(path, [row_of(rollout) for rollout in rollouts.rows()])


def row_of(rollout: Rollout) -> Row:
    """The row that stands for a rollout: prompt and response as token ids, split at the first sampled token."""
    sampled = [bool(a) for a in rollout.action_mask]
    start = sampled.index(True) if True in sampled else len(sampled)
    row: Row = {
        "schema": SCHEMA,
        "id": rollout.id,
        "group": rollout.group,
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
        else [None if math.isnan(p) else p for p in rollout.logprobs[start:]],
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
    if not isinstance(group, str | int):
        raise InputError(f"{place}: group is {group!r}; expected a string or a whole number")
    own_text = "text" in row and "offsets" in row
    return Rollout(
        tokens=tokens.ids,
        action_mask=_mask(row, tokens.sampled, prompt, place),
        group=group,
        outcome=_outcome(row.get("outcome"), place),
        ended=bool(row.get("ended", True)),
        id=str(row.get("id", "")),
        text=row["text"] if own_text else tokens.text,
        turns=_column(row, "turns", len(tokens.ids), place) or tokens.turns,
        logprobs=_logprobs(row, prompt, len(tokens.ids), place),
        offsets=[(int(a), int(b)) for a, b in row["offsets"]]
        if own_text
        else (None if tokens.text is None else tokens.offsets),
        step_rewards=_scores(row, "step_rewards", place),
        step_values=_scores(row, "step_values", place),
    )


def _add(tokens: _Tokens, part: Any, name: str, place: str) -> None:
    """Add a prompt or response: text, token ids, or chat messages (of which the assistant's were sampled)."""
    sampled = name == "response"
    tokens.turn += sampled
    if isinstance(part, str):
        tokens.add_text(part, sampled=sampled)
    elif isinstance(part, list) and all(type(token) is int for token in part):
        tokens.add_ids(part, sampled=sampled)
    elif isinstance(part, list) and all(isinstance(message, dict) for message in part):
        for message in part:
            text = _message_text(message, place)
            tokens.add_text(text, sampled=sampled and message.get("role") == "assistant")
            tokens.add_text("\n", sampled=False)
            tokens.turn += 1
    else:
        raise InputError(f"{place}: {name} must be text, a list of token ids or a list of chat messages")


def _message_text(message: dict[str, Any], place: str) -> str:
    if "role" not in message:
        raise InputError(f"{place}: a chat message has no role; it has {', '.join(message) or 'no field'}")
    text = message.get("content") or ""
    if isinstance(text, list):
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
    calls = [call.get("function", call) for call in message.get("tool_calls") or []]
    return "\n".join([*([text] if text else []), *(f"{c.get('name')}({c.get('arguments', '')})" for c in calls)])


def _mask(row: Row, sampled: list[bool], prompt: int, place: str) -> list[bool]:
    if "action_mask" not in row:
        return sampled
    given = _column(row, "action_mask", len(sampled) - prompt, place) or []
    return [False] * prompt + [bool(a) for a in given]


def _outcome(outcome: Any, place: str) -> float | None:
    if outcome is None:
        return None
    if not isinstance(outcome, int | float):
        raise InputError(f"{place}: outcome is {outcome!r}; expected a number, or null for not scored")
    if not math.isfinite(outcome):
        raise InputError(f"{place}: outcome is {outcome}; expected a finite number, or null for not scored")
    return float(outcome)


def _scores(row: Row, name: str, place: str) -> tuple[float, ...] | None:
    scores = row.get(name)
    if scores is None:
        return None
    if not isinstance(scores, list):
        raise InputError(f"{place}: {name} must be a list of numbers, one a step or one a sampled token")
    for k, score in enumerate(scores):
        if not isinstance(score, int | float) or not math.isfinite(score):
            raise InputError(f"{place}: {name}[{k}] is {score!r}; expected a finite number")
    return tuple(float(score) for score in scores)


def _logprobs(row: Row, prompt: int, total: int, place: str) -> list[float] | None:
    if "token_logprobs" not in row:
        return None
    given = _column(row, "token_logprobs", total - prompt, place) or []
    return [math.nan] * prompt + [math.nan if p is None else float(p) for p in given]


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
