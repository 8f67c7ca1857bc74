"""What the command says: findings for people, one JSON document for programs, and the list of checks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from apportion.doctor.check import Check
from apportion.doctor.checks import BY_CODE, CHECKS
from apportion.doctor.finding import LEVELS, Finding
from apportion.doctor.run import Diagnosis
from apportion.errors import InputError, did_you_mean

SCHEMA = 1
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def asked(path: Path | None, fail_on: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """The run, and what is to count as failure: levels and codes. Raises InputError for words that nobody knows."""
    if path is None:
        raise InputError("name a run folder or log, or list the checks with --list")
    codes = {check.name: check.code for check in CHECKS} | {code: code for code in BY_CODE}
    for word in fail_on:
        if word not in LEVELS and word not in codes:
            raise InputError(f"--fail-on takes a level or a check, got {word!r}{did_you_mean(word, [*LEVELS, *codes])}")
    return path, tuple(codes.get(word, word) for word in fail_on)


def fails(findings: Sequence[Finding], fail_on: Sequence[str]) -> bool:
    """Whether a finding is of one of these codes, or of one of these levels or a worse one."""
    worst = max((LEVELS.index(word) for word in fail_on if word in LEVELS), default=-1)
    return any(found.code in fail_on or LEVELS.index(found.level) <= worst for found in findings)


def print_diagnosis(path: Path, diagnosis: Diagnosis, console: Console) -> None:
    """Findings, root causes first, each with evidence, why it matters and what to do; then what could not be seen."""
    history = diagnosis.history
    console.print(Text(f"doctor: {path}: {history.kind}, steps {history.steps[0]} to {history.steps[-1]}"))
    if not diagnosis.findings:
        console.print(Text(f"nothing found by {len(diagnosis.well)} checks", "green"))
    for found in diagnosis.findings:
        check = BY_CODE[found.code]
        headed = Text.assemble("\n", (f"{found.code} {found.level}", STYLES[found.level]), f"  {check.name}")
        headed.append(f"  (explained by {', '.join(found.follows)})" if found.follows else "")
        console.print(headed)
        lines = (_evidence(found), f"Why: {check.why}", f"Do: {check.remedy}", f"More: {check.page}")
        for said in lines:
            console.print(Padding(Text(said), (0, 0, 0, 4)))
    if diagnosis.well:
        console.print(Text("\nwell: " + ", ".join(f"{check.code} {check.name}" for check in diagnosis.well), "dim"))
    if diagnosis.skipped:
        table = Table(title=Text("could not be looked at"), title_justify="left")
        for heading in ("check", "why", "what to log"):
            table.add_column(heading, overflow="fold")
        for check, reason in diagnosis.skipped:
            to_log = check.log if reason.startswith("not logged") else ""
            table.add_row(Text(f"{check.code} {check.name}"), Text(reason), Text(to_log))
        console.print(table)


def as_json(path: Path, diagnosis: Diagnosis) -> str:
    """One document; docs/doctor.md describes it."""
    document = {
        "schema": SCHEMA,
        "run": str(path),
        "kind": diagnosis.history.kind,
        "steps": [diagnosis.history.steps[0], diagnosis.history.steps[-1]],
        "findings": [_entry(found) for found in diagnosis.findings],
        "well": [check.code for check in diagnosis.well],
        "skipped": [{"code": c.code, "name": c.name, "reason": why, "log": c.log} for c, why in diagnosis.skipped],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)


def print_checks(console: Console) -> None:
    """The list of checks, in the order of causes."""
    table = Table(show_header=False, box=None)
    for check in CHECKS:
        table.add_row(Text(check.code), Text(check.name), Text(check.rule))
    console.print(table)


def _evidence(found: Finding) -> str:
    where = f" Steps {found.steps[0]} to {found.steps[1]}" if found.steps else ""
    by = f", by {', '.join(found.called)}." if found.called else "."
    return f"{found.said[0].upper()}{found.said[1:]}.{where}{by}"


def _entry(found: Finding) -> dict[str, Any]:
    check: Check = BY_CODE[found.code]
    return {
        "code": found.code,
        "name": check.name,
        "level": found.level,
        "said": found.said,
        "figures": {name: entry if math.isfinite(entry) else None for name, entry in found.figures.items()},
        "steps": list(found.steps) if found.steps else None,
        "called": list(found.called),
        "follows": list(found.follows),
        "why": check.why,
        "remedy": check.remedy,
        "page": check.page,
    }
