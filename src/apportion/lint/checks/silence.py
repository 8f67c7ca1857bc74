"""Silence: what the policy did not sample has no advantage. Exactly 0, since 0 times anything finite is 0."""

from __future__ import annotations

from torch import Tensor

from apportion.lint.batch import Batch
from apportion.lint.check import Case, Check, columns
from apportion.lint.finding import Finding, broken, holds


def environment(case: Case) -> Finding:
    """Broken where a token of the environment (or any unsampled one, if padding is not told apart) has an advantage."""
    batch = case.batch
    return _silent(batch, batch.valid & ~batch.sampled, "tokens that were not sampled")


def padding(case: Case) -> Finding:
    """Broken where padding has an advantage."""
    return _silent(case.batch, case.batch.padding, "places of padding")


def _silent(batch: Batch, places: Tensor, called: str) -> Finding:
    off = places & (batch.grids["advantages"] != 0)
    if bool(off.any()):
        return broken(f"{int(off.sum())} of {int(places.sum())} {called}", batch.first(off, "advantages", 0.0))
    return holds(f"{int(places.sum())} {called}, all exactly 0")


def _padding_columns(batch: Batch) -> tuple[str, ...]:
    known = () if batch.knows_padding else ("segments or valid_mask",)
    return (*batch.lacking("action_mask", "advantages"), *known)


ENVIRONMENT = Check(
    "environment-credit",
    "tokens of the environment have advantage 0",
    "Multiply nothing: set advantages to 0 by torch.where(action_mask, advantages, 0), after normalisation.",
    columns("action_mask", "advantages"),
    environment,
)
PADDING = Check(
    "padding-credit",
    "padding has advantage 0",
    "Set advantages to 0 by torch.where(action_mask, advantages, 0): NaN times a mask of 0 is NaN.",
    _padding_columns,
    padding,
)
