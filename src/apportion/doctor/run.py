"""The whole examination: every check, on one history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from apportion.doctor.check import Check, rooted
from apportion.doctor.checks import CHECKS
from apportion.doctor.finding import Finding
from apportion.doctor.history import History
from apportion.doctor.readers import read


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """findings: root causes first. well: checks that found nothing. skipped: those that could not run, and why."""

    history: History
    findings: tuple[Finding, ...]
    well: tuple[Check, ...]
    skipped: tuple[tuple[Check, str], ...]


def examine(history: History) -> Diagnosis:
    """Run every check that can be run."""
    reasons = {check.code: check.cannot(history) for check in CHECKS}
    able = [check for check in CHECKS if not reasons[check.code]]
    found = {check.code: check(history) for check in able}
    return Diagnosis(
        history,
        rooted([finding for finding in found.values() if finding is not None], CHECKS),
        tuple(check for check in able if found[check.code] is None),
        tuple((check, reasons[check.code]) for check in CHECKS if reasons[check.code]),
    )


def diagnose(path: str | Path) -> list[Finding]:
    """What ails the run in a folder or log, root causes first.

    Raises InputError for what is no run that we can read.
    """
    return list(examine(read(path)).findings)
