"""Rows of any rollout file with all that a page can show of them: a ledger, or else what the file holds instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import torch

from apportion import files
from apportion.errors import InputError
from apportion.files import Row
from apportion.ledger import Recipe, apportion
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters
from apportion.view.answers import Answer, answer_of, number

TRIED = (splitters.lines, splitters.turns, splitters.sentences, splitters.whole)
"""Step scores of a file that came without credit are put on the first steps whose count they fit."""
NO_FIGURE = {"step", "id", "group", "outcome", "score", "reward", "ended", "schema", "schema_version", "trial", "rank"}
NO_FIGURE |= {"task_id", "export_sequence_idx", "end_value", "branched_at", "advantage", "__index_level_0__"}


def read_answers(path: Path, *, recipe: Recipe | None = None, format: str | None = None) -> list[Answer]:
    """The answers of a file of rollouts, with the credit that it holds or that the recipe works out.

    Without either, tokens have what there is: rewards and values of steps, and an advantage that was logged.
    Raises InputError for what the file or the recipe lacks.
    """
    placed = list(files.read_rows(path))
    if recipe is None and format in (None, "apportion") and all(_credited(row) for _, row in placed):
        return [answer_of({"id": n} | row, place) for n, (place, row) in enumerate(placed)]
    rollouts = files.load(path, format=format)
    rows = _with_what_there_is(rollouts) if recipe is None else apportion(rollouts, recipe).rows()
    raw = placed if len(placed) == len(rows) else [(f"{path}, rollout {n}", {}) for n in range(len(rows))]
    shown = []
    for row, (place, came) in zip(rows, raw, strict=True):
        row["figures"] = _figures(came)
        if recipe is None:
            row["ledger"] |= _logged(came, row) if not came.get("ledger") else came["ledger"]
        shown.append(answer_of(row, place))
    return shown


def step_curves(path: Path) -> dict[str, list[Any]]:
    """Means by training step, for a log whose rows name more than one; else nothing."""
    steps: dict[int, list[Row]] = {}
    for _, row in files.read_rows(path):
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            return {}
        steps.setdefault(step, []).append(_figures(row) | _score(row))
    if len(steps) < 2:
        return {}
    order = sorted(steps)
    names = dict.fromkeys(name for rows in steps.values() for row in rows for name in row)
    found: dict[str, list[Any]] = {"step": list(order)}
    for name in names:
        columns = [[row.get(name) for row in steps[step]] for step in order]
        found[name] = [_mean([entry for entry in column if entry is not None]) for column in columns]
    return found


def summary(answers: Sequence[Answer]) -> Row:
    """What the head of the page says of a file: counts, and the middle length."""
    lengths = [sum(k >= 0 for k in answer.of) for answer in answers]
    return {
        "answers": len(answers),
        "groups": len({answer.group for answer in answers}),
        "tokens": sum(lengths),
        "median": median_low(lengths) if lengths else 0,
        "credited": sum(answer.credited for answer in answers),
    }


def _credited(row: Row) -> bool:
    ids = row.get("response")
    return isinstance(row.get("ledger"), dict) and isinstance(ids, list) and all(type(token) is int for token in ids)


def _with_what_there_is(rollouts: Rollouts) -> list[Row]:
    """Rows with a ledger that has no credit: steps, and the rewards and values that came for them."""
    return [files.row_of(rollout) | {"ledger": _given(rollout)} for rollout in rollouts.rows()]


def _given(rollout: Rollout) -> Row:
    scores = {"reward": rollout.step_rewards, "value": rollout.step_values}
    counts = {len(column) for column in scores.values() if column is not None}
    mask = list(rollout.action_mask)
    whole = [0 if sampled else -1 for sampled in mask]
    if len(counts) != 1:
        return {"step_of": whole}
    count = counts.pop()
    step_of = _each(mask) if count == sum(mask) else _fitting_steps(rollout, count)
    if step_of is None:
        return {"step_of": whole}
    return {"step_of": step_of} | {name: None if c is None else list(c) for name, c in scores.items()}


def _each(mask: Sequence[bool]) -> list[int]:
    count = -1
    return [(count := count + 1) if sampled else -1 for sampled in mask]


def _fitting_steps(rollout: Rollout, count: int) -> list[int] | None:
    """The steps of the first splitter that makes so many of them; None where none does."""
    batch = collate([rollout], dtype=torch.float64)
    for split in TRIED:
        try:
            steps = split(batch)
        except InputError:  # what it needs, such as text, did not come
            continue
        if int(steps.counts[0]) == count:
            return [int(k) for k in steps.step_of.flatten()[batch.places()[0]]]
    return None


def _logged(came: Row, row: Row) -> Row:
    """The advantage that another's trainer logged: one for the whole answer, or one a token."""
    advantage, length = came.get("advantage", came.get("advantages")), len(row["prompt"]) + len(row["response"])
    step_of = row["ledger"]["step_of"]
    if number(advantage) is not None and not isinstance(advantage, bool):
        return {"advantage": [advantage if k >= 0 else 0 for k in step_of]}
    return {"advantage": advantage} if isinstance(advantage, list) and len(advantage) == length else {}


def _figures(row: Row) -> Row:
    """Other numbers of a row, short: the scores of single reward functions, say."""
    plain = {name: short for name, entry in row.items() if (short := number(entry)) is not None}
    return {name: x for name, x in plain.items() if name not in NO_FIGURE and not isinstance(row[name], bool)}


def _score(row: Row) -> Row:
    """The score of the answer under the name of its curve."""
    for name in ("outcome", "score", "reward"):
        if (short := number(row.get(name))) is not None:
            return {"outcome_mean": short}
    return {}


def _mean(entries: list[Any]) -> Any:
    return number(sum(entries) / len(entries)) if entries else None
