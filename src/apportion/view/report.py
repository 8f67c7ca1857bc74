"""The report of a run: what was trained, the curves, and sampled answers coloured by their credit.

The page is `report.html` filled with the settings and the data; `report.js` draws the data with `report.css`. All of
it goes into one file that asks nothing of any network. Text of models enters the page as JSON only, and the script
puts it there as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from apportion.errors import InputError
from apportion.files import Row, write_atomically
from apportion.view.answers import number, read_ledger, scale_limit

LEDGERS = 5
"""Saved ledgers in a page: the first, the last and some between."""
POINTS = 600
"""Most points of a curve."""
CURVES = (
    "step", "pass_rate", "outcome_mean", "mean_abs_advantage", "kl", "entropy", "grad_norm",
    "length_p10", "length_p50", "length_p90", "tokens_per_second",
)  # fmt: skip

_SETTING = re.compile(r"(?:# )?(\w+) =.*?  # (.*)")

Item = TypeVar("Item")


def write_report(run: Path) -> Path:
    """Write RUN/report.html from what the folder of a run holds so far, and give its path.

    Raises InputError for a folder without a run, or a file in it that does not parse.
    """
    config = run / "config.toml"
    if not config.is_file():
        raise InputError(f"{run}: holds no run (there is no config.toml in it)")
    settings = _settings(config)
    metrics = _logged(run / "metrics.jsonl")
    page = _render(
        run=_headline(run, {name: value for name, value, _ in settings}, metrics),
        evaluations=_evaluations(run / "evaluations.json"),
        settings=settings,
        data=_data(run, metrics),
    )
    path = run / "report.html"
    write_atomically(path, page.replace("\0", "\ufffd").encode("utf-8", errors="replace"))
    return path


def _data(run: Path, metrics: list[Row]) -> dict[str, Any]:
    """What the script draws: a list a curve, all of one length, and the ledgers."""
    speeds = {row.get("step"): row.get("tokens_per_second") for row in _logged(run / "timings.jsonl")}
    rows = [row | {"tokens_per_second": speeds.get(row.get("step"))} for row in _spread_over(metrics, POINTS)]
    saved = sorted((run / "ledgers").glob("step-*.jsonl"))
    ledgers = [read_ledger(path) for path in _spread_over(saved, LEDGERS)]
    return {
        "steps_total": len(metrics),
        "curves": {name: [number(row.get(name)) for row in rows] for name in CURVES},
        "ledgers_total": len(saved),
        "limit": scale_limit(ledgers),
        "ledgers": ledgers,
    }


def _headline(run: Path, settings: dict[str, Any], metrics: list[Row]) -> dict[str, Any]:
    planned = settings.get("steps")
    done = len(metrics)
    model = str(settings.get("model") or "model not named")
    return {
        "folder": run.resolve().name,
        "recipe": settings.get("recipe") or "recipe not named",
        "task": settings.get("task") or "task not named",
        "model": Path(model).name or model,
        "seed": settings.get("seed"),
        "steps": done,
        "planned": planned,
        "unfinished": isinstance(planned, int) and done < planned,
        "tokens": metrics[-1].get("generated_tokens") if metrics else None,
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


def _spread_over(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[round(n * (len(items) - 1) / (most - 1))] for n in range(most)]


def _render(**content: Any) -> str:
    try:
        import jinja2
    except ImportError as error:
        raise InputError("a report needs jinja2: pip install 'apportion[train]'") from error
    from markupsafe import Markup

    template, style, script = (
        resources.files("apportion.view").joinpath(f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("html", "css", "js")
    )
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.from_string(template).render(
        content,
        style=Markup(style),  # ours, and `_hash` is what the page lets in
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _hash(text: str) -> str:
    """The source that a content security policy names to let in this very text, and nothing else."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
