"""What the folder of a run holds so far, as its page shows it: headline, curves, settings and saved ledgers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from apportion.errors import InputError
from apportion.files import Row
from apportion.view.answers import number
from apportion.view.shelf import Shelf
from apportion.view.source import read_answers

LEDGERS = 8
"""Saved ledgers in a page: the first, the last and some between."""
POINTS = 600
"""Most points of a curve."""
NO_CURVE = {"skipped_updates", "critic_skipped_updates", "sampled_tokens", "generated_tokens", "seconds"}

_SETTING = re.compile(r"(?:# )?(\w+) =.*?  # (.*)")

Item = TypeVar("Item")


def is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()


def run_content(run: Path) -> tuple[Row, list[Shelf]]:
    """What the template and the curves need of a run, and its saved ledgers.

    Raises InputError for a folder without a run, or a file in it that does not parse.
    """
    if not is_run(run):
        raise InputError(f"{run}: holds no run (there is no config.toml in it)")
    settings = _settings(run / "config.toml")
    metrics = _logged(run / "metrics.jsonl")
    saved = sorted((run / "ledgers").glob("step-*.jsonl"))
    content = {
        "run": _headline(run, {name: value for name, value, _ in settings}, metrics),
        "evaluations": _evaluations(run / "evaluations.json"),
        "settings": settings,
        "curves": _curves(run, metrics),
        "steps_total": len(metrics),
        "ledgers_total": len(saved),
    }
    return content, [_shelf(path) for path in spread_over(saved, LEDGERS)]


def _shelf(path: Path) -> Shelf:
    return Shelf(int(path.stem.rpartition("-")[2]), read_answers(path))


def _curves(run: Path, metrics: list[Row]) -> dict[str, list[Any]]:
    """A list of every figure that was ever a number, all of one length."""
    times = {row.get("step"): row for row in _logged(run / "timings.jsonl")}
    rows = [times.get(row.get("step"), {}) | row for row in spread_over(metrics, POINTS)]
    names = ["step", *dict.fromkeys(name for row in rows for name in row if name not in {"step", *NO_CURVE})]
    curves = {name: [number(row.get(name)) for row in rows] for name in names}
    return {name: curve for name, curve in curves.items() if name == "step" or any(x is not None for x in curve)}


def _headline(run: Path, settings: dict[str, Any], metrics: list[Row]) -> dict[str, Any]:
    planned, budget = settings.get("steps"), settings.get("token_budget")
    done, tokens = len(metrics), metrics[-1].get("generated_tokens") if metrics else None
    spent = isinstance(budget, int) and isinstance(tokens, int) and tokens >= budget
    model = str(settings.get("model") or "model not named")
    return {
        "folder": run.resolve().name,
        "recipe": settings.get("recipe") or "recipe not named",
        "task": settings.get("task") or "task not named",
        "model": Path(model).name or model,
        "seed": settings.get("seed"),
        "steps": done,
        "planned": planned,
        "unfinished": isinstance(planned, int) and done < planned and not spent,
        "tokens": tokens,
    }


def _settings(config: Path) -> list[tuple[str, Any, str]]:
    """Name, value (None = not set) and meaning of every setting; the meaning is the comment behind it."""
    try:
        text = config.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{config}: not a TOML file ({error})") from error
    about = {found[1]: found[2] for line in text.splitlines() if (found := _SETTING.fullmatch(line))}
    return [(name, values.get(name), about.get(name, "")) for name in dict.fromkeys([*about, *values])]


def _evaluations(path: Path) -> dict[str, Row | None]:
    """The pass rates `before` and `after`; None where nothing was tested."""
    found = _parsed(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else {}
    return {when: _pass_rate(found.get(when)) for when in ("before", "after")}


def _pass_rate(found: Any) -> Row | None:
    entries = found if isinstance(found, dict) else {}
    rate = {name: number(entries.get(name)) for name in ("rate", "low", "high", "scored")}
    return None if None in rate.values() else rate


def _logged(path: Path) -> list[Row]:
    """The rows of a log; a last line that was cut short is left out, as when the run is taken up again."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]


def _parsed(text: str, place: str) -> Row:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"{place}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise InputError(f"{place}: expected an object with fields, got {type(found).__name__}")
    return found


def spread_over(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(n * (len(items) - 1) / (most - 1))] for n in range(most)]
