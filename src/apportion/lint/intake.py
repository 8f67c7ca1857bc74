"""From columns as somebody has them to a `Batch`. What cannot be laid on one grid is refused, saying what and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from apportion.errors import InputError, nearest
from apportion.lint import names
from apportion.lint.batch import Batch
from apportion.lint.desk import Desk
from apportion.lint.runs import begins
from apportion.lint.settings import settings_of
from apportion.lint.tensors import column_of
from apportion.lint.tolerance import LARGEST


def batch_of(columns: Mapping[str, Any]) -> Batch:
    """Lay columns out on one token grid.

    Raises InputError for shapes that do not fit each other, masks that are not 0 or 1, and names that nobody knows
    where a recipe or a reduction is asked for.
    """
    came = {name: value for name, value in columns.items() if name in names.KNOWN and value is not None}
    read = {name: column_of(name, came[name]) for name in names.GRIDS if name in came}
    if not read:
        raise InputError(f"no column of tokens came; known are {', '.join(names.GRIDS)}{_unknown(columns)}")
    desk = Desk(read)
    laid = {name: desk.laid(name) for name in read}
    masks = {name: _truth(name, laid[name]) for name in names.MASKS if name in laid}
    segments = _whole("segments", laid["segments"]) if "segments" in laid else torch.zeros(desk.shape).long()
    valid = masks.get("valid_mask", desk.within_rows()) & (segments >= 0)
    if not bool(valid.any()):
        raise InputError("every token is padding: there is nothing to check")
    rollout_of = _rollout_of(valid, segments)
    batch = Batch(
        action_mask=masks.get("action_mask", valid),
        valid=valid,
        rollout_of=rollout_of,
        segments=segments,
        knows_padding=desk.ragged or not {"segments", "valid_mask"}.isdisjoint(came),
        came=frozenset(came),
        grids={name: laid[name] for name in names.NUMBERS if name in laid},
        epsilons={name: column.epsilon for name, column in read.items()},
        groups=_groups(came["groups"], rollout_of) if "groups" in came else None,
        end_values=_end_values(came["end_values"], rollout_of) if "end_values" in came else None,
        micro_batch=_micro_batch(came["micro_batch"], desk.shape[0]) if "micro_batch" in came else None,
        settings=settings_of(came),
        notes=(unknown.removeprefix("; "),) if (unknown := _unknown(columns)) else (),
    )
    return desk.spread_over_rows(batch)


def _rollout_of(valid: Tensor, segments: Tensor) -> Tensor:
    """Number the rollouts in reading order: a row, or a run of one segment id in a row."""
    rows = torch.arange(valid.shape[0]).unsqueeze(1).expand_as(valid)[valid]
    opens = begins(rows) | begins(segments[valid])
    return torch.full(valid.shape, -1).masked_scatter(valid, opens.cumsum(0) - 1)


def _truth(name: str, numbers: Tensor) -> Tensor:
    astray = ((numbers != 0) & (numbers != 1)).nonzero()
    if len(astray):
        row, position = astray[0].tolist()
        came = float(numbers[row, position])
        raise InputError(f"{name}, row {row}, position {position}: expected 0 or 1, got {came:g}")
    return numbers == 1


def _whole(name: str, numbers: Tensor) -> Tensor:
    astray = ~numbers.isfinite() | (numbers != numbers.round()) | (numbers.abs() > 2**53)
    if bool(astray.any()):
        raise InputError(f"{name} must be whole numbers, got {float(numbers[astray][0]):g}")
    return numbers.long()


def _groups(value: Any, rollout_of: Tensor) -> Tensor:
    """The group of each rollout, counted from 0; ids may be numbers or text."""
    entries = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(entries, (list, tuple)) and any(isinstance(entry, str) for entry in entries):
        if None in entries:
            raise InputError(f"groups, row {list(entries).index(None)}: expected an id, got null")
        index = {entry: g for g, entry in enumerate(dict.fromkeys(entries))}
        value = [index[entry] for entry in entries]
    ids = _whole("groups", _a_rollout("groups", value, rollout_of))
    return _dense(ids)


def _end_values(value: Any, rollout_of: Tensor) -> Tensor:
    numbers = _a_rollout("end_values", value, rollout_of)
    astray = numbers.abs() > LARGEST
    if bool(astray.any()):
        raise InputError(f"end_values must be numbers, or NaN where a rollout ended, got {float(numbers[astray][0]):g}")
    return numbers


def _a_rollout(name: str, value: Any, rollout_of: Tensor) -> Tensor:
    """One number a rollout, from one a row, or from that of the rollout's first token."""
    came, (rows, width) = column_of(name, value).numbers, rollout_of.shape
    if came.numel() == rows:
        numbers = came.reshape(rows, 1).expand(rows, width)
    else:
        numbers = came.unsqueeze(0) if came.dim() == 1 else came
    if numbers.shape != rollout_of.shape:
        raise InputError(f"{name} has shape {tuple(came.shape)}, expected ({rows},) or ({rows}, {width})")
    owner = rollout_of[rollout_of >= 0]
    return numbers[rollout_of >= 0][begins(owner)]


def _micro_batch(value: Any, rows: int) -> Tensor:
    ids = _whole("micro_batch", column_of("micro_batch", value).numbers).flatten()
    if len(ids) != rows:
        raise InputError(f"micro_batch has {len(ids)} entries for {rows} rows")
    return _dense(ids)


def _dense(ids: Tensor) -> Tensor:
    """The ids, counted from 0."""
    index: Tensor = torch.unique(ids, return_inverse=True)[1]
    return index


def _unknown(columns: Mapping[str, Any]) -> str:
    """The names that nobody knows, each with the nearest that is known."""
    unknown = [f"{name}{nearest(str(name), names.KNOWN)}" for name in columns if name not in names.KNOWN]
    return f"; not looked at: {', '.join(unknown[:8])}" if unknown else ""
