"""A saved ledger as the page shows it: some groups, their answers, a list a column, None for what was not scored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from apportion.errors import InputError
from apportion.files import Row, read_rows

GROUPS = 8
"""Groups shown of a ledger: those with the most credit."""
TOKENS = 20_000
"""Tokens shown of a ledger; a group that goes beyond is cut after a whole answer."""
STEP_COLUMNS = ("reward", "value", "credit", "normalised")


def read_ledger(path: Path) -> dict[str, Any]:
    """Read one file of ledgers/ and keep what is shown.

    Raises InputError where a column has not one entry a token, or one a step.
    """
    groups: dict[str, list[Row]] = {}
    for n, (place, row) in enumerate(read_rows(path)):
        groups.setdefault(str(row.get("group")), []).append(_answer({"id": n} | row, place))
    chosen = sorted(groups, key=lambda name: _mean_size(groups[name]), reverse=True)[:GROUPS]
    shown, room = [], TOKENS
    for name in chosen:
        if room > 0:
            shown.append(_group(name, groups[name], room))
            whole = len(shown[-1]["answers"]) == len(groups[name])
            room = room - sum(len(answer["id"]) for answer in shown[-1]["answers"]) if whole else 0
    order = list(groups)
    shown.sort(key=lambda group: order.index(group["name"]))
    strongest = order.index(chosen[0])
    return {
        "step": int(path.stem.rpartition("-")[2]),
        "groups_total": len(groups),
        "strongest": [order.index(group["name"]) for group in shown].index(strongest),
        "groups": shown,
    }


def scale_limit(ledgers: Sequence[dict[str, Any]]) -> float:
    """The |advantage| of full colour, both ways: nearly all that is shown lies within. 0 = all advantages are 0."""
    answers = [answer for ledger in ledgers for group in ledger["groups"] for answer in group["answers"]]
    sizes = sorted(abs(a) for answer in answers for a in answer["advantage"] if a)
    if not sizes:
        return 0.0
    size = sizes[min(len(sizes) - 1, math.ceil(0.99 * len(sizes)))]
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return float(f"{math.ceil(round(size / unit, 6)) * unit:.2g}")


def number(entry: Any) -> float | int | str | None:
    """A number short enough for a page; None for NaN and for what is not a number."""
    if not isinstance(entry, int | float) or not math.isfinite(entry):
        return None
    short = float(f"{entry:.4g}") if abs(entry) < 1e4 else round(entry)
    return int(short) if short == int(short) else short


def _group(name: str, answers: list[Row], room: int) -> dict[str, Any]:
    """A group with the prompt that its answers share taken out of them; answers only as far as there is room."""
    prompts = {(answer["prompt"], tuple(answer["id"][: answer["prompt"]])) for answer in answers}
    shared = answers[0]["prompt"] if len(prompts) == 1 else 0
    prompt = {key: None if answers[0][key] is None else answers[0][key][:shared] for key in ("id", "text")}
    kept: list[Row] = []
    for answer in answers:
        room -= len(answer["id"]) - shared
        if room < 0 and kept:
            break
        columns = {key: None if (c := answer[key]) is None else c[shared:] for key in ("id", "text", "of", "advantage")}
        kept.append({key: x for key, x in answer.items() if key != "prompt"} | columns)
    return {"name": name, "answers_total": len(answers), "prompt": prompt, "answers": kept}


def _answer(row: Row, place: str) -> Row:
    """The columns of an answer. `of`: the step of a token, -1 where the policy did not sample it."""
    prompt, response, ledger = row.get("prompt") or [], row.get("response") or [], row.get("ledger") or {}
    ids = [*prompt, *response]
    mask = row.get("action_mask") or [True] * len(response)
    step_of = ledger.get("step_of") or [-1] * len(prompt) + [0 if sampled else -1 for sampled in mask]
    count = max(step_of, default=-1) + 1
    spans = row.get("offsets")
    parts = {f"part {name}": part for name, part in (ledger.get("parts") or {}).items()}
    steps = {name: ledger.get(name) for name in STEP_COLUMNS} | (parts if len(parts) > 1 else {})
    scored = row.get("outcome") is not None and ledger.get("advantage") is not None
    return {
        "name": str(row["id"]),
        "outcome": number(row.get("outcome")),
        "ended": bool(row.get("ended", True)),
        "scored": scored,
        "prompt": len(prompt),
        "id": ids,
        "text": _pieces(str(row["text"]), _fitting(spans, len(ids), "offsets", place))
        if spans and "text" in row
        else None,
        "of": _fitting(step_of, len(ids), "step_of", place),
        "advantage": _numbers(ledger.get("advantage"), len(ids), "advantage", place),
        "steps": {name: _numbers(column, count, name, place) for name, column in steps.items()},
    }


def _pieces(text: str, spans: list[Any]) -> list[str]:
    """The text of every token. A character of several tokens goes to the last; one of none, to the token after it."""
    starts = [*(int(start) for start, _ in spans[1:]), len(text)]
    cuts = [0]
    for (_, end), following in zip(spans, starts, strict=True):
        cuts.append(max(cuts[-1], min(int(end), following)))
    return [text[start:end] for start, end in pairwise(cuts)]


def _numbers(column: list[Any] | None, length: int, name: str, place: str) -> list[Any]:
    return [None] * length if column is None else [number(x) for x in _fitting(column, length, name, place)]


def _fitting(column: list[Any], length: int, name: str, place: str) -> list[Any]:
    if len(column) != length:
        raise InputError(f"{place}: {name} has {len(column)} entries where {length} were expected")
    return column


def _mean_size(answers: list[Row]) -> float:
    sizes = [abs(a) for answer in answers for a in answer["advantage"] if a is not None]
    return sum(sizes) / len(sizes) if sizes else 0.0
