"""The command: table, plot, document, verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli
from apportion.audit import audit, report
from apportion.audit.files import from_file
from apportion.audit.verdict import verdict
from apportion.cli import judging
from apportion.errors import ApportionError

STEPS = ["one", "two", "three", "four"]
"""Answers of four steps; the score falls most at the first error, and the last is lowest."""


def rows(count: int = 12) -> list[dict]:
    """In every second answer all scores are low."""
    made = []
    for n in range(count):
        key, high = n % 3, (0.9, 0.45)[n % 2]
        scores = [high] * 5
        for k in range(key, 4):
            scores[k + 1] = 0.2 - 0.05 * k
        made.append({"prompt": f"{n} <b>", "steps": STEPS, "first_error": key, "step_scores": scores})
    return [*made, {"prompt": "right", "steps": STEPS, "first_error": None, "step_scores": [0.9] * 4}]


def write(path: Path, entries: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in entries))
    return path


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if isinstance(result.exception, ApportionError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(judging, "console", Console(width=140, force_terminal=False))
    monkeypatch.chdir(tmp_path)


def test_the_table_has_a_row_a_method_and_ends_in_a_verdict(tmp_path: Path) -> None:
    file = write(tmp_path / "answers.jsonl", rows())
    status, said = call("audit", file)
    assert status == 0
    for name in ("whole", "gae:0.5", "telescoping", "min_form", "threshold", "drop", "argmin", "random"):
        assert re.search(rf"│ {re.escape(name)}\S* +│", said), name
    assert "12 of 13 answers lost, 52 steps; by chance 25 % have the key step first" in said
    assert "keep drop: it blames the key step most in 100 %" in said


def test_the_document_holds_everything_and_null_for_what_says_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "answers.jsonl", rows())
    status, said = call("audit", file, "--methods", "drop, argmin", "--json")
    assert status == 0
    found = json.loads(said)
    assert [one["name"] for one in found["judged"]] == ["drop", "argmin"]
    assert found["judged"][0]["figures"]["hit_1"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found["judged"][0]["figures"]["mc"]["value"] is None
    assert found["judged"][1]["less_first"]["hit_1"]["value"] == -1.0
    assert set(found["figures"]) == set(found["judged"][0]["figures"])
    assert found["verdict"] == verdict(audit(from_file(file)[0], ["drop", "argmin"]))


def test_files_are_written_by_their_endings_and_come_out_the_same_again(tmp_path: Path) -> None:
    file = write(tmp_path / "answers.jsonl", rows())
    for turn in ("a", "b"):
        outs = [part for end in ("svg", "md", "json") for part in ("--out", f"{turn}.{end}")]
        assert call("audit", file, "--methods", "drop,whole,random", *outs)[0] == 0
    for end in ("svg", "md", "json"):
        assert (tmp_path / f"a.{end}").read_bytes() == (tmp_path / f"b.{end}").read_bytes()
    picture = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert len(picture.findall(".//{*}circle")) == 3 * 3
    assert (tmp_path / "a.md").read_text().count("\n| drop") == 1


def test_a_figure_that_says_nothing_is_no_dot(tmp_path: Path) -> None:
    file = write(tmp_path / "answers.jsonl", rows())
    assert call("audit", file, "--methods", "drop,reinforce_plus_plus,threshold:0", "--out", "a.svg")[0] == 0
    assert (tmp_path / "a.svg").read_text().count("says nothing") == 2  # nobody is blamed: no correlation, no weight


BAD = [
    pytest.param(["gone.jsonl"], "no such file", id="no-file"),
    pytest.param(["answers.jsonl", "--out", "a.png"], r".svg (plot), .md (tables) or .json", id="wrong-ending"),
    pytest.param(["answers.jsonl", "--out", "gone/a.svg"], "gone does not exist", id="no-folder"),
    pytest.param(["answers.jsonl", "--methods", "dropp"], "did you mean 'drop'", id="unknown-method"),
    pytest.param(["answers.jsonl", "--scores", "prm"], "no field 'prm'", id="unknown-field"),
    pytest.param(["answers.jsonl", "--write-scores", "b.jsonl"], "give policy too", id="scores-of-nobody"),
    pytest.param(["answers.jsonl", "--policy", "gone"], "no such folder", id="no-model"),
    pytest.param(["chain", "--policy", "embedded"], "no effect on the embedded task", id="no-effect"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_a_bad_call_is_one_line_and_leaves_nothing_behind(tmp_path: Path, arguments: list[str], words: str) -> None:
    write(tmp_path / "answers.jsonl", rows())
    status, said = call("audit", *arguments)
    assert (status, words in said) == (2, True), said
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]


def test_scores_that_a_policy_found_are_written_and_read_again(tmp_path: Path) -> None:
    row = {"prompt": "47A+5B-3~?", "steps": ["Ab47+5=52", "Ba52-3=47"], "first_error": 1, "answer": "49"}
    file = write(tmp_path / "answers.jsonl", [row, row | {"first_error": None}])
    first = call("audit", file, "--policy", "embedded", "--write-scores", "scored.jsonl", "--methods", "drop", "--json")
    again = call("audit", "scored.jsonl", "--methods", "drop", "--json")
    assert (first[0], again[0]) == (0, 0)
    figures = [json.loads(said)["judged"][0]["figures"] for _, said in (first, again)]
    assert figures[0] == figures[1]


def test_the_verdict_says_who_spreads_what_cannot_be_told_apart_and_when_nobody_is_better_than_chance(
    tmp_path: Path,
) -> None:
    subject, _ = from_file(write(tmp_path / "answers.jsonl", rows()))
    said = verdict(audit(subject, ["drop", "telescoping", "whole"]))
    assert said == [
        "keep drop: it blames the key step most in 100 % of lost answers (100 to 100; chance 25)",
        "not told apart from it: telescoping (100 %, no tokens either)",
        "whole spreads 75 % of its weight on steps that changed nothing",
    ]
    hopeless = verdict(audit(subject, ["whole", "random"]))
    assert hopeless[0].startswith("keep none: no method finds the key step more often than chance, 25 %")


def test_an_audit_without_a_lost_answer_says_so(tmp_path: Path) -> None:
    subject, _ = from_file(write(tmp_path / "answers.jsonl", rows()[-1:]))
    assert verdict(audit(subject, ["drop"])) == [
        "keep what you have: no answer was lost, so there is no key step to find"
    ]


def test_a_narrow_terminal_keeps_the_intervals_of_two_figures() -> None:
    from apportion.audit.judge import Figure

    found = Figure(0.714, 0.63, 0.78)
    assert report.cell("hit_1", found) == "71 [63, 78]"
    assert report.cell("pearson", found, sign=True) == "+0.71 [+0.63, +0.78]"
    assert report.cell("hit_1", found, bare=True) == "71"
    assert report.cell("pearson", Figure(-0.001, -0.2, 0.1)) == "0.00 [-0.20, 0.10]"
    assert report.cell("mc", Figure(float("nan"), float("nan"), float("nan"))) == "–"
