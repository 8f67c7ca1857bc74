"""Pages of runs and files for the tests of `view`, and a page as a browser sees it."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from apportion.view.report import write_page

CONFIG = """\
recipe = "vineppo"  # method of credit, by name
model = "/models/tiny"  # `embedded`, a Hugging Face folder, or a GGUF file
seed = 7  # all chance in a run follows from it
steps = 2  # updates of the policy
task = "chain"  # `chain` (embedded)
# data =  # JSONL of prompts and answers, for the task `data`
"""
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "<b>",
    "&",
    "\n",
    "\u2028",
    "\u202e",
    "\ud800",
    "{{ 7*7 }}",
    "\x00",
    "👩‍🔬",
]


class Page(HTMLParser):
    """The page as a browser sees it: its tags, the text of its scripts, and its security policy."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.names: list[str] = []
        self.policy = ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")
            self.names.append(dict(attrs).get("id") or "")
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    @property
    def bodies(self) -> dict[str, dict[str, Any]]:
        """The groups whose answers the page holds, by `shelf-group`."""
        named = zip(self.names, self.scripts, strict=True)
        return {name.removeprefix("body-"): json.loads(script) for name, script in named if name.startswith("body-")}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Every answer as the list of answers has it."""
        return [answer for shelf in self.data["shelves"] for answer in shelf["answers"]]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """Every answer as it is drawn, with a list a column."""
        bodies = [answer for body in self.bodies.values() for answer in body["answers"]]
        runs = ("of", "advantage")
        return [body | {name: None if body[name] is None else spread(body[name]) for name in runs} for body in bodies]

    @property
    def own(self) -> list[str]:
        """The scripts that are run."""
        return [script for name, script in zip(self.names, self.scripts, strict=True) if not name]


def saved_row(pieces: list[str], advantage: list[float] | None, **columns: Any) -> dict[str, Any]:
    """A row of a saved ledger, every token a step."""
    count = len(pieces)
    steps = {name: [0.5] * count for name in ("reward", "value", "credit", "normalised")}
    ends = accumulate(map(len, pieces), initial=0)
    return {
        "group": "g",
        "prompt": [],
        "response": list(range(count)),
        "action_mask": [True] * count,
        "outcome": 1.0,
        "text": "".join(pieces),
        "offsets": list(pairwise(ends)),
        "ledger": {"step_of": list(range(count)), **steps, "advantage": advantage},
    } | columns


def make_run(folder: Path, *ledgers: list[dict[str, Any]], config: str = CONFIG) -> Path:
    (folder / "ledgers").mkdir()
    (folder / "config.toml").write_text(config, encoding="utf-8")
    for step, rows in enumerate(ledgers):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / "ledgers" / f"step-{step:06d}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def page_of(folder: Path, *ledgers: list[dict[str, Any]], config: str = CONFIG) -> Page:
    return Page(write_page(make_run(folder, *ledgers, config=config)))


def write_logs(folder: Path) -> None:
    metrics = [{"step": 0, "pass_rate": 0.25, "kl": math.nan}, {"step": 1, "pass_rate": None, "kl": 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    (folder / "timings.jsonl").write_text('{"step": 1, "tokens_per_second": 1234.5}\n')


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def spread(runs: list[Any]) -> list[Any]:
    """What the page's script makes of equal neighbours that were put together."""
    return [entry for entry, count in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)]
