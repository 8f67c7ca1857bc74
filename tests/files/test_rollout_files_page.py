"""docs/rollout-files.md: its examples are run, in order and in one folder, and print what the page says."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion import cli

PAGE = Path(__file__).parents[2] / "docs" / "rollout-files.md"
BLOCK = re.compile(r"(?:^`(?P<name>[\w.]+)`\n\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str, str]]:
    """Kind, file name and body of every code block of the page."""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        yield block["kind"], block["name"] or "", block["body"]


def outcome_of(kind: str, body: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a block, warnings shown as a user sees them, and give what it printed."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        run(kind, body, monkeypatch)
    printed = capsys.readouterr()
    return printed.out + printed.err


def run(kind: str, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "python":
        exec(body, {})
    else:
        monkeypatch.setattr("sys.argv", shlex.split(body))
        with pytest.raises(SystemExit):
            cli.main()


def test_every_example_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    printed = None
    compared = 0
    for kind, name, body in blocks():
        if kind in ("jsonl", "json"):
            Path(name).write_text(body, encoding="utf-8")
        elif kind == "text":
            assert printed is not None
            assert [line.rstrip() for line in printed.splitlines()] == body.splitlines()
            compared += 1
        else:
            printed = outcome_of(kind, body, capsys, monkeypatch)

    assert compared == 10


def test_the_page_names_every_field_that_is_written() -> None:
    from apportion.files import row_of
    from apportion.rollouts import Rollout

    full = Rollout(
        tokens=[1],
        action_mask=[True],
        group="g",
        outcome=1.0,
        id="a",
        text="x",
        turns=[0],
        logprobs=[-1.0],
        offsets=[(0, 1)],
        step_rewards=(1.0,),
        step_values=(1.0,),
        end_value=1.0,
        branched_at=1,
    )
    page = PAGE.read_text(encoding="utf-8")

    for name in row_of(full):
        assert re.search(rf"^\|.*`{name}`", page, re.MULTILINE), name
