"""What the command says: a table for people, one JSON document for programs, and the list of checks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion.errors import InputError, did_you_mean
from apportion.lint import names
from apportion.lint.checks import BY_CODE, CHECKS
from apportion.lint.finding import Finding
from apportion.lint.intake import batch_of
from apportion.lint.run import findings_of
from apportion.lint.tensor_file import read_columns

SCHEMA = 1
STYLES = {"holds": "green", "broken": "bold red", "not checkable": "dim"}


def asked(file: Path | None, columns: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The file, and what it calls columns, from the words of the command line. Raises InputError for others."""
    if file is None:
        raise InputError("name a file to lint, or list the checks with --list")
    renamed = {}
    for words in columns:
        name, equals, called = words.partition("=")
        if not equals or name not in names.KNOWN:
            raise InputError(f"--column must be NAME=COLUMN, got {words!r}{did_you_mean(name, names.KNOWN)}")
        renamed[name] = called
    return file, renamed


def lint_file(path: Path, given: Mapping[str, Any], renamed: Mapping[str, str]) -> tuple[Finding, ...]:
    """Check the columns of a file. given: settings that take the place of the file's; None = not given.

    Raises InputError, naming the file, for what cannot be read or laid out.
    """
    said = {name: value for name, value in given.items() if value is not None}
    columns = read_columns(path, renamed) | said
    try:
        return findings_of(batch_of(columns))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def without(findings: Iterable[Finding], ignored: Sequence[str]) -> tuple[Finding, ...]:
    """The findings, less those of checks that are to be ignored. Raises InputError for a check that nobody knows."""
    for code in ignored:
        if code not in BY_CODE:
            raise InputError(f"there is no check {code!r}{did_you_mean(code, BY_CODE)}")
    return tuple(found for found in findings if found.code not in ignored)


def any_broken(findings: Iterable[Finding]) -> bool:
    return any(found.verdict == "broken" for found in findings)


def as_json(path: Path, findings: Sequence[Finding]) -> str:
    """One document; docs/lint/index.md describes it. A number that is none is null, and `said` names it."""
    document = {
        "schema": SCHEMA,
        "file": str(path),
        "verdict": "broken" if any_broken(findings) else "holds",
        "findings": [_entry(found) for found in findings],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)


def print_findings(path: Path, findings: Sequence[Finding], console: Console) -> None:
    """Every check with its verdict and evidence; then what to do about each that is broken."""
    table = Table(title=Text(f"lint: {path}"), title_justify="left", show_lines=False)
    for heading in ("check", "verdict", "evidence"):
        table.add_column(heading, overflow="fold")
    for found in findings:
        table.add_row(Text(found.code), Text(found.verdict, STYLES[found.verdict]), Text(found.said))
    console.print(table)
    for found in findings:
        if found.verdict == "broken":
            check = BY_CODE[found.code]
            console.print(Text(f"{check.code}: {check.remedy} ({check.page})"))


def print_checks(console: Console) -> None:
    """The list of checks."""
    table = Table(show_header=False, box=None)
    for check in CHECKS:
        table.add_row(Text(check.code), Text(check.rule))
    console.print(table)


def _entry(found: Finding) -> dict[str, Any]:
    check, place = BY_CODE[found.code], found.place
    return {
        "code": found.code,
        "rule": check.rule,
        "verdict": found.verdict,
        "said": found.said,
        "pattern": found.pattern,
        "place": None
        if place is None
        else {
            "row": place.row,
            "position": place.position,
            "column": place.column,
            "came": _finite(place.came),
            "expected": _finite(place.expected),
        },
        "missing": list(found.missing),
        "remedy": check.remedy,
        "page": check.page,
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
