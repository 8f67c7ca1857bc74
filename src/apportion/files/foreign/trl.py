"""Completion logs of TRL: what GRPOTrainer writes with `log_completions=True`.

Source: trl 1.16.0, `log` in `trainer/grpo_trainer.py`: a Parquet file a logged step, with columns `step`, `prompt`,
`completion`, one of numbers for each reward function, what `log_extra` added, and `advantage`. In the files of trl
0.28.0 and 1.0.0 prompts and completions are text. RLOOTrainer, and GRPOTrainer up to 0.26.2, log the same columns as a
table of a tracker; up to 0.17.0 that had no `advantage`, and up to 0.16.1 one column `reward`.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from apportion.errors import InputError, did_you_mean
from apportion.files.fields import finite, name_of_group, needed
from apportion.files.foreign.source import Groups, Source
from apportion.files.storage import Row
from apportion.files.words import MESSAGES, TEXT, Tokens
from apportion.rollouts import Rollout

FIELDS = ("step", "prompt", "completion")
NO_REWARD = frozenset({*FIELDS, "advantage", "__index_level_0__"})

Weights = Mapping[str, float]


def weights_of(said: str) -> Weights:
    """The weights in `NAME=WEIGHT,NAME=WEIGHT`; a name without a weight counts once.

    >>> weights_of("accuracy_reward,length_reward=0.5")
    {'accuracy_reward': 1.0, 'length_reward': 0.5}
    """
    weights: dict[str, float] = {}
    for part in said.split(","):
        name, equals, weight = part.partition("=")
        try:
            weights[name] = float(weight) if equals else 1.0
        except ValueError:
            weights[name] = math.nan
        if not name or not math.isfinite(weights[name]):
            raise InputError(f"format trl: expected NAME=WEIGHT,NAME=WEIGHT for the columns of rewards, got {part!r}")
    return weights


def read(source: Source, weights: Weights | None = None) -> list[Rollout]:
    """One rollout a row; equal step and prompt are a group.

        outcome = Σ weight × reward, over the reward functions that gave one

    As in TRL, a reward that is null or NaN is left out of the sum, and a row without any is not scored.
    weights: of the columns of rewards. Left out: every column of numbers counts once, since a log holds neither the
    weights nor which columns are rewards.
    Warns of the sum that was taken for want of weights, of logged advantages that do not follow the outcomes, and of
    text that holds tool results.
    """
    columns = _numeric(source)
    chosen = dict.fromkeys(columns, 1.0) if weights is None else weights
    for name in chosen:
        if name not in columns:
            raise InputError(f"{source.file}: there is no column of numbers {name!r}{did_you_mean(name, columns)}")
    groups = Groups()
    rollouts = [_rollout(row, place, chosen, Tokens(source.words), groups) for place, row in source.rows]
    if weights is None and len(columns) > 1:
        source.warn(
            f"outcome = {' + '.join(columns)}: a log of TRL holds no weights, so every column of numbers counts once; "
            f"to weigh them or leave one out: format trl:{columns[0]}=1,{columns[1]}=0.5"
        )
    _warn_of_advantages(source, rollouts)
    source.warn_of_tools("completion")
    return rollouts


def _numeric(source: Source) -> list[str]:
    """The columns that hold numbers and nothing else, in the order of the file."""
    names = list(dict.fromkeys(name for _, row in source.rows for name in row))
    entries = {name: [row[name] for _, row in source.rows if row.get(name) is not None] for name in names}
    found = [name for name in names if name not in NO_REWARD and entries[name] and all(map(_is_number, entries[name]))]
    if not found:
        raise InputError(
            f"{source.file}: expected a column of numbers for each reward function; the columns are {', '.join(names)}"
        )
    return found


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)


def _rollout(row: Row, place: str, weights: Weights, tokens: Tokens, groups: Groups) -> Rollout:
    for name in ("prompt", "completion"):
        part = _without_nulls(needed(row, name, place))
        tokens.add(part, (TEXT, MESSAGES), name, place, sampled=name == "completion")
    step = name_of_group(needed(row, "step", place), "step", place)
    return tokens.rollout(group=groups.of(row["prompt"], f"step {step}, "), outcome=_outcome(row, weights, place))


def _outcome(row: Row, weights: Weights, place: str) -> float | None:
    given = {name: row[name] for name in weights if row.get(name) is not None and row[name] == row[name]}
    for name, reward in given.items():
        if not finite(reward):
            raise InputError(
                f"{place}: {name} is {reprlib.repr(reward)}; expected a finite number, or null or NaN for no reward"
            )
    return sum(weights[name] * float(reward) for name, reward in given.items()) if given else None


def _without_nulls(part: Any) -> Any:
    """Messages as they were: Parquet gives each the fields of all, and each tool call the arguments of all, as null."""
    if isinstance(part, dict):
        return {name: _without_nulls(entry) for name, entry in part.items() if entry is not None}
    return [_without_nulls(entry) for entry in part] if isinstance(part, list) else part


def _warn_of_advantages(source: Source, rollouts: list[Rollout]) -> None:
    groups: dict[Any, list[tuple[float, float]]] = {}
    for rollout, (_, row) in zip(rollouts, source.rows, strict=True):
        advantage = row.get("advantage")
        if rollout.outcome is not None and isinstance(advantage, int | float) and finite(advantage):
            groups.setdefault(rollout.group, []).append((rollout.outcome, float(advantage)))
    astray = sum(not _follow(pairs) for pairs in groups.values())
    if astray:
        source.warn(
            f"in {astray} of {len(groups)} groups the logged advantages do not follow the outcomes: the run had other "
            "weights, logged numbers that are no rewards, put the KL into the reward, or normalised each reward alone"
        )


def _follow(pairs: list[tuple[float, float]]) -> bool:
    """Whether advantages lie on a rising straight line over outcomes, as they do for a sum of rewards in a group."""
    outcomes, advantages = (_centred(column) for column in zip(*pairs, strict=True))
    reach = max(map(abs, outcomes))
    if reach <= 1e-6 * max(abs(outcome) for outcome, _ in pairs):
        return max(map(abs, advantages)) <= 1e-2
    outcomes = [outcome / reach for outcome in outcomes]
    slope = sum(o * a for o, a in zip(outcomes, advantages, strict=True)) / sum(o * o for o in outcomes)
    off = max(abs(a - slope * o) for o, a in zip(outcomes, advantages, strict=True))
    return slope > 0 and off <= 1e-2 * max(map(abs, advantages))


def _centred(numbers: tuple[float, ...]) -> list[float]:
    mean = sum(numbers) / len(numbers)
    return [number - mean for number in numbers]
