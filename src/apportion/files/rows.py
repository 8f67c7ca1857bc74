"""A row of a rollout file, and the `Rollout` that it stands for. `docs/rollout-files.md` describes a row."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.files.fields import INT64, column, count, finite, flag, flags, name_of_group, needed, number, score
from apportion.files.storage import Row, write_rows
from apportion.files.words import IDS, MESSAGES, TEXT, Tokens
from apportion.rollouts import ROUNDING, Rollout, Rollouts

SCHEMA = 1


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
        "end_value": rollout.end_value,
        "branched_at": rollout.branched_at or None,
    }
    return {name: value for name, value in row.items() if value is not None or name == "outcome"}


def rollout_of(row: Row, place: str, words: dict[str, int]) -> Rollout:
    """The rollout that a row stands for.

    words: ids of the words of this file so far; new ones are added.
    Raises InputError naming the place, the field and its position, what came and what was expected.
    """
    row = {name: entry for name, entry in row.items() if entry is not None or name == "outcome"}
    version = row.get("schema", SCHEMA)
    if version != SCHEMA:
        raise InputError(f"{place}: schema {version!r} is unknown; this version reads schema {SCHEMA}")
    response, outcome, group = (needed(row, name, place) for name in ("response", "outcome", "group"))
    tokens, kinds = Tokens(words), (TEXT, IDS, MESSAGES)
    tokens.add(row.get("prompt", ""), kinds, "prompt", place, sampled=False)
    prompt = len(tokens.ids)
    tokens.add(response, kinds, "response", place, sampled=True)
    given = flags(row, "action_mask", len(tokens.ids) - prompt, place)
    mask = tokens.sampled if given is None else [False] * prompt + given
    text, offsets = _text(row, tokens, place)
    return Rollout(
        tokens=tokens.ids,
        action_mask=mask,
        group=name_of_group(group, "group", place),
        outcome=score(outcome, "outcome", place),
        ended=flag(row.get("ended", True), "ended", place),
        id=str(row.get("id", "")),
        text=text,
        turns=_turns(row, tokens.turns, place),
        logprobs=_logprobs(row, mask, prompt, place),
        offsets=offsets,
        step_rewards=_scores(row, "step_rewards", place),
        step_values=_scores(row, "step_values", place),
        end_value=number(row["end_value"], "end_value", place) if "end_value" in row else None,
        branched_at=count(row.get("branched_at", 0), len(tokens.ids), "branched_at", place),
    )


def _turns(row: Row, made: list[int], place: str) -> list[int]:
    given = column(row, "turns", len(made), place)
    if given is None:
        return made
    for n, turn in enumerate(given):
        if type(turn) is not int or turn not in INT64:
            raise InputError(f"{place}: turns[{n}] is {reprlib.repr(turn)}; expected a whole number")
    return given


def _text(row: Row, tokens: Tokens, place: str) -> tuple[str | None, list[tuple[int, int]] | None]:
    """The text of the row with a span of it for each token: as given, or as the words were cut."""
    if "text" not in row or "offsets" not in row:
        return tokens.text, None if tokens.text is None else tokens.offsets
    text = row["text"]
    if not isinstance(text, str):
        raise InputError(f"{place}: text is {type(text).__name__}; expected a string")
    spans = column(row, "offsets", len(tokens.ids), place) or []
    for n, span in enumerate(spans):
        whole = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
        if not whole or not 0 <= span[0] <= span[1] <= len(text):
            raise InputError(
                f"{place}: offsets[{n}] is {reprlib.repr(span)}; "
                f"expected [start, end] within the {len(text)} characters of text"
            )
    return text, [(start, end) for start, end in spans]


def _scores(row: Row, name: str, place: str) -> tuple[float, ...] | None:
    scores = row.get(name)
    if scores is None:
        return None
    if not isinstance(scores, list):
        raise InputError(
            f"{place}: {name} must be a list of numbers, one a step or one a sampled token; got {type(scores).__name__}"
        )
    return tuple(number(entry, f"{name}[{k}]", place) for k, entry in enumerate(scores))


def _logprobs(row: Row, mask: list[bool], prompt: int, place: str) -> list[float] | None:
    given = column(row, "token_logprobs", len(mask) - prompt, place)
    return None if given is None else logprobs_of([None] * prompt + given, mask, "token_logprobs", place, skip=prompt)


def logprobs_of(given: list[Any], mask: list[bool], name: str, place: str, *, skip: int = 0) -> list[float]:
    """Log-probabilities of the sampled tokens, NaN elsewhere: what stands there is not looked at.

    skip: tokens before those that the field of the row has.
    """
    for n, (sampled, logprob) in enumerate(zip(mask, given, strict=True)):
        if sampled and not (isinstance(logprob, int | float) and finite(logprob) and logprob <= ROUNDING):
            raise InputError(f"{place}: {name}[{n - skip}] is {reprlib.repr(logprob)}; expected a number of at most 0")
    return [float(logprob) if sampled else math.nan for sampled, logprob in zip(mask, given, strict=True)]


def _list(entries: Sequence[Any] | None) -> list[Any] | None:
    return None if entries is None else list(entries)
