"""What the tests of the checks share: findings by code, and two batches that are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.lint import Finding, lint
from apportion.lint.intake import batch_of
from apportion.lint.run import findings_of

NAN, INF = float("nan"), float("inf")
GAE = {
    "action_mask": [[1, 0, 1], [1, 1, 0]],
    "valid_mask": [[1, 1, 1], [1, 1, 0]],
    "rewards": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    "values": [[0.5, 4.0, 0.5], [0.25, 0.5, 0.0]],
    "advantages": [[0.25, 0.0, 0.5], [0.5, 0.5, 0.0]],
    "gamma": 1.0,
    "lam": 0.5,
}
EDGE = pytest.mark.parametrize(("off", "verdict"), [(0.25, "holds"), (0.375, "broken")], ids=["at", "past"])


def answers(**changes) -> dict:
    columns = {
        "action_mask": [[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]],
        "rewards": [[0, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]],
        "groups": ["a", "a", "b", "b"],
        "advantages": [[-1.0, 0, -1.0], [1.0, 1.0, 0], [0, 0, 0], [0, 0, 0]],
        "recipe": "dr_grpo",
    }
    return columns | changes


def findings(columns: dict) -> dict[str, Finding]:
    return {found.code: found for found in lint(columns)}


def broken(columns: dict) -> list[str]:
    return [found.code for found in lint(columns) if found.verdict == "broken"]


def where(found: Finding) -> tuple:
    assert found.place is not None, found
    return found.place.row, found.place.position, found.place.came, found.place.expected


def exact(columns: dict, tolerance: float) -> dict[str, Finding]:
    """The findings if all columns were exact and only `tolerance` were allowed."""
    batch = batch_of(columns | {"tolerance": tolerance})
    return {found.code: found for found in findings_of(replace(batch, epsilons=dict.fromkeys(batch.epsilons, 0.0)))}
