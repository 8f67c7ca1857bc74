"""From rollouts one by one to a batch: padded, a row each, or packed, several to a row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts.batch import Rollouts
from apportion.rollouts.row import Rollout
from apportion.rollouts.scores import Scores


def collate(rows: Sequence[Rollout], *, dtype: torch.dtype = torch.float32, width: int | None = None) -> Rollouts:
    """Make a right-padded batch.

    dtype: of the outcome, and so of all credit computed from it.
    width: lay rollouts one after another into rows of at most so many tokens, in their order; None = a row each.
    Raises InputError naming the row, what came and what was expected; one is a rollout longer than `width`.
    """
    if not rows:
        raise InputError("a batch needs at least one rollout, none came")
    earlier: dict[Hashable, list[Rollout]] = {}
    for n, row in enumerate(rows):
        _check_row(n, row)
        _check_trunk(n, row, earlier.setdefault(row.group, []))
        earlier[row.group].append(row)
    lines = [[row] for row in rows] if width is None else _filled(rows, width)
    return _assemble(lines, list(rows), dtype)


def pack(rollouts: Rollouts, length: int) -> Rollouts:
    """Lay the rollouts one after another into rows of at most `length` tokens, keeping their order.

    Raises InputError when a rollout is longer than a row.
    """
    return collate(rollouts.rows(), dtype=rollouts.outcome.dtype, width=length)


def _filled(rows: Sequence[Rollout], width: int) -> list[list[Rollout]]:
    lines: list[list[Rollout]] = []
    room = -1
    for row in rows:
        size = len(row.tokens)
        if size > width:
            raise InputError(f"rollout {row.id} has {size} tokens, a packed row holds {width}")
        if size > room:
            lines.append([])
            room = width
        lines[-1].append(row)
        room -= size
    return lines


def _assemble(lines: list[list[Rollout]], rows: list[Rollout], dtype: torch.dtype) -> Rollouts:
    width = max(1, *(sum(len(row.tokens) for row in line) for line in lines))

    def grid(entries: list[list[list[int]]], fill: int) -> Tensor:
        flat = [[x for part in line for x in part] for line in entries]
        return torch.tensor([line + [fill] * (width - len(line)) for line in flat], dtype=torch.int64)

    def floats(entries: list[list[Sequence[float]]]) -> Tensor:
        flat = [[x for part in line for x in part] for line in entries]
        return torch.tensor([line + [float("nan")] * (width - len(line)) for line in flat], dtype=torch.float32)

    numbers = iter(range(len(rows)))
    names = list(dict.fromkeys(row.group for row in rows))
    index = {name: g for g, name in enumerate(names)}
    has_logprobs = all(row.logprobs is not None for row in rows)
    has_offsets = any(row.offsets is not None for row in rows)
    return Rollouts(
        tokens=grid([[list(r.tokens) for r in line] for line in lines], 0),
        rollout_of=grid([[[next(numbers)] * len(r.tokens) for r in line] for line in lines], -1),
        action_mask=grid([[[int(a) for a in r.action_mask] for r in line] for line in lines], 0).bool(),
        turns=grid([[_turns(r) for r in line] for line in lines], -1),
        groups=torch.tensor([index[row.group] for row in rows]),
        outcome=_numbers([row.outcome for row in rows], dtype),
        ended=torch.tensor([bool(row.ended) for row in rows]),
        logprobs=floats([[r.logprobs or [] for r in line] for line in lines]) if has_logprobs else None,
        offsets=torch.stack(
            [grid([[_side(r, side) for r in line] for line in lines], 0) for side in (0, 1)],
            dim=-1,
        )
        if has_offsets
        else None,
        ids=tuple(row.id or str(n) for n, row in enumerate(rows)),
        group_names=tuple(names),
        texts=tuple(row.text for row in rows),
        step_rewards=_scores([row.step_rewards for row in rows]),
        step_values=_scores([row.step_values for row in rows]),
        end_values=None if all(row.end_value is None for row in rows) else _numbers([r.end_value for r in rows], dtype),
        branched_at=torch.tensor([r.branched_at for r in rows]) if any(row.branched_at for row in rows) else None,
    )


def _scores(rows: list[tuple[float, ...] | None]) -> Scores | None:
    return None if all(row is None for row in rows) else Scores.of(rows)


def _numbers(entries: list[float | None], dtype: torch.dtype) -> Tensor:
    """As a tensor; NaN for None."""
    return torch.tensor([float("nan") if entry is None else float(entry) for entry in entries], dtype=dtype)


def _side(row: Rollout, side: int) -> list[int]:
    """Where each token starts (0) or ends (1) in the text; 0 where that is not known."""
    return [0] * len(row.tokens) if row.offsets is None else [span[side] for span in row.offsets]


def _turns(row: Rollout) -> list[int]:
    """The given turns, or a new turn wherever sampled and other tokens meet."""
    if row.turns is not None:
        return list(row.turns)
    turns = [0]
    for before, now in pairwise(row.action_mask):
        turns.append(turns[-1] + (bool(before) != bool(now)))
    return turns[: len(row.tokens)]


def _check_row(n: int, row: Rollout) -> None:
    length = len(row.tokens)
    for name in ("action_mask", "turns", "logprobs", "offsets"):
        column = getattr(row, name)
        if column is not None and len(column) != length:
            raise InputError(f"rollout {n}: {name} has {len(column)} entries for {length} tokens")


def _check_trunk(n: int, row: Rollout, earlier: Sequence[Rollout]) -> None:
    """A branch begins as one of the rollouts of its group does that came earlier."""
    shared = row.branched_at
    if not 0 <= shared <= len(row.tokens):
        raise InputError(f"rollout {n}: branched_at is {shared}; expected 0 to its {len(row.tokens)} tokens")
    begins = list(row.tokens[:shared])
    if shared and not any(list(trunk.tokens[:shared]) == begins for trunk in earlier):
        raise InputError(
            f"rollout {n}: branched_at is {shared}, but no earlier one of its group begins with the same tokens"
        )
