"""Token exports of prime-rl: what `trainer.enable_token_export` makes it write, a sequence a line.

Source: prime-rl at 559b447 (August 2026), `src/prime_rl/trainer/rl/token_export.py`, schema version 1. Exports from
before 27 June 2026 also have `rewards`, the rollout's reward at each of its tokens.
"""

from __future__ import annotations

import reprlib
from typing import Any

from apportion.errors import InputError
from apportion.files.fields import column, flags, is_token, needed, number
from apportion.files.foreign.source import Groups, Source
from apportion.files.rows import logprobs_of
from apportion.files.storage import Row
from apportion.rollouts import Rollout

FIELDS = ("token_ids", "loss_mask", "advantages")
SCHEMA = 1


def read(source: Source) -> list[Rollout]:
    """One rollout a sequence, sampled where `loss_mask` is true; equal step, environment and prompt are a group.

    The outcome is the reward that was exported. Where none was, it is the sequence's advantage: its reward minus the
    trainer's baseline. Rewards of a group may be shifted together, and its credit stays as it was.
    Warns where advantages stand for rewards, of sequences without an outcome and of missing log-probabilities.
    """
    rewarded = any(_numbers(row.get("rewards")) for _, row in source.rows)
    groups = Groups()
    rollouts = [_rollout(row, place, groups, rewarded) for place, row in source.rows]
    if not rewarded:
        source.warn("the export holds no rewards; each sequence's advantage (reward minus baseline) is its outcome")
    unscored = sum(rollout.outcome is None for rollout in rollouts)
    if unscored:
        source.warn(
            f"{unscored} of {len(rollouts)} sequences count as not scored: their rewards are null, or without rewards "
            "their advantages differ from token to token or have no weight in the policy gradient (rl_weights)"
        )
    silent = sum(rollout.logprobs is None for rollout in rollouts)
    if silent:
        source.warn(f"{silent} of {len(rollouts)} sequences have no inference_logprobs at some sampled token, so none")
    return rollouts


def _rollout(row: Row, place: str, groups: Groups, rewarded: bool) -> Rollout:
    version = row.get("schema_version")
    if version != SCHEMA:
        raise InputError(f"{place}: schema_version is {version!r}; this version reads {SCHEMA}")
    tokens = _tokens(row, place)
    mask = flags(_with(row, "loss_mask", place), "loss_mask", len(tokens), place) or []
    start = mask.index(True) if True in mask else len(mask)
    step = row.get("step", "?")
    return Rollout(
        tokens=tokens,
        action_mask=mask,
        group=groups.of([row.get("env_name"), tokens[:start]], f"step {step}, "),
        outcome=_reward(row, mask, place) if rewarded else _advantage(row, mask, place),
        id="/".join(str(row.get(name, "?")) for name in ("step", "rank", "export_sequence_idx")),
        logprobs=_logprobs(row, mask, place),
    )


def _tokens(row: Row, place: str) -> list[int]:
    tokens = needed(row, "token_ids", place)
    if not isinstance(tokens, list):
        raise InputError(f"{place}: token_ids is {type(tokens).__name__}; expected a list of whole numbers")
    for n, token in enumerate(tokens):
        if not is_token(token):
            raise InputError(f"{place}: token_ids[{n}] is {reprlib.repr(token)}; expected a whole number")
    return tokens


def _reward(row: Row, mask: list[bool], place: str) -> float | None:
    """The one reward of a sequence; null = not scored."""
    rewards = _of_sampled(row, "rewards", mask, place)
    if not _numbers([entry for _, entry in rewards]):
        return None
    n, first = rewards[0]
    for m, entry in rewards:
        if entry != first:
            raise InputError(
                f"{place}: rewards[{m}] is {entry!r} and rewards[{n}] is {first!r}; expected one reward a sequence"
            )
    return number(first, f"rewards[{n}]", place)


def _advantage(row: Row, mask: list[bool], place: str) -> float | None:
    """The one advantage of a sequence; None where it has several, or takes no part in the policy gradient."""
    given = _of_sampled(_with(row, "advantages", place), "advantages", mask, place)
    advantages = {number(entry, f"advantages[{n}]", place) for n, entry in given}
    weights = [weight for _, weight in _of_sampled(row, "rl_weights", mask, place)]
    idle = bool(weights) and all(weight == 0 for weight in weights)
    return advantages.pop() if len(advantages) == 1 and not idle else None


def _logprobs(row: Row, mask: list[bool], place: str) -> list[float] | None:
    given = column(row, "inference_logprobs", len(mask), place)
    if given is None or any(entry is None for entry, sampled in zip(given, mask, strict=True) if sampled):
        return None
    return logprobs_of(given, mask, "inference_logprobs", place)


def _of_sampled(row: Row, name: str, mask: list[bool], place: str) -> list[tuple[int, Any]]:
    """Position and entry of the sampled tokens in a column; none where the row has no such column."""
    given = column(row, name, len(mask), place) or []
    return [(n, entry) for n, (entry, sampled) in enumerate(zip(given, mask, strict=bool(given))) if sampled]


def _with(row: Row, name: str, place: str) -> Row:
    """The row, which must have this column."""
    if needed(row, name, place) is None:
        raise InputError(f"{place}: {name} is null; expected a list with one entry a token")
    return row


def _numbers(entries: Any) -> bool:
    """Whether a column holds anything but null."""
    return isinstance(entries, list) and any(entry is not None for entry in entries)
