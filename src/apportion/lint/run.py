"""Run every check on a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from apportion.lint.batch import Batch
from apportion.lint.check import Case
from apportion.lint.checks import CHECKS, layout
from apportion.lint.finding import Finding, not_checkable
from apportion.lint.intake import batch_of


def lint(batch: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Check that credit was handled right in a batch of tensors, arrays or lists, of whatever framework.

    The columns, their shapes and their meaning are in docs/lint/index.md; others are not looked at. Gives one finding a
    check, in the order of the report. It writes nothing and draws no random numbers, so it may stand in a training
    loop:

        assert not [found for found in lint(batch) if found.verdict == "broken"]

    Raises InputError for columns that do not fit each other.

    >>> columns = {"action_mask": [[1, 0, 1]], "advantages": [[0.5, 0.5, 0.5]]}
    >>> print(*(found for found in lint(columns) if found.verdict == "broken"))
    environment-credit: broken: 1 of 1 tokens that were not sampled; row 0, position 1: advantages is 0.5, expected 0
    """
    with torch.device("cpu"):  # whatever the caller's default is: tensors are copied there
        return findings_of(batch_of(batch))


def findings_of(batch: Batch) -> tuple[Finding, ...]:
    """One finding a check. Nothing is looked at where the layout is broken, and no column that holds no numbers."""
    case = Case(batch)
    first = layout.LAYOUT(case)
    if first.verdict != "holds":
        reason = "mend bad-layout first" if first.verdict == "broken" else first.said
        return (first, *(replace(not_checkable(reason, first.missing), code=check.code) for check in CHECKS[1:]))
    unusable = tuple(name for name in batch.grids if bool(layout.not_usable(batch, name).any()))
    later = Case(batch.without(unusable))
    rest = tuple(check(later) for check in CHECKS[2:])
    return (first, layout.FINITE(case), *(_explained(found, unusable) for found in rest))


def _explained(found: Finding, unusable: tuple[str, ...]) -> Finding:
    """A column that came but holds no numbers is not called missing without saying so."""
    if not set(found.missing) & set(unusable):
        return found
    return replace(found, said=f"{found.said} (came, but see not-finite)")
