"""`apportion lint` as a user in a hurry meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli
from apportion.cli import judging
from apportion.errors import ApportionError
from apportion.lint import CHECKS

GOOD = '{"action_mask": [1, 0, 1], "rewards": [0, 0, 1], "values": [0.5, 9, 0.5], "advantages": [0.25, 0, 0.5]}\n'
LEAKY = GOOD.replace("0.25, 0,", "-0.125, 0,")
SETTINGS = ("--gamma", "1", "--lam", "0.5")


@pytest.fixture(autouse=True)
def somewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(judging, "console", Console(width=140, force_terminal=False))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for a shell of its own
    (tmp_path / "good.jsonl").write_text(GOOD)
    (tmp_path / "leaky.jsonl").write_text(LEAKY)
    return tmp_path


def call(*arguments: str) -> tuple[int, str]:
    """Exit status, and what a terminal would show."""
    result = CliRunner().invoke(cli.app, ["lint", *arguments])
    if isinstance(result.exception, ApportionError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_batch_that_is_right_exits_0_and_shows_every_check():
    status, said = call("good.jsonl", *SETTINGS)
    assert status == 0
    assert all(check.code in said for check in CHECKS)
    assert "broken" not in said


def test_a_leak_exits_1_with_the_first_place_the_numbers_and_what_to_do():
    status, said = call("leaky.jsonl", *SETTINGS)
    words = " ".join(said.replace("│", " ").split())
    assert status == 1
    assert "gamma and lam decay through the gap (as in OpenRLHF 0.11)" in words
    assert "row 0, position 0: advantages is -0.125, expected 0.25" in words
    assert "gap-leak: Work out credit on the sampled tokens alone" in words
    assert "(docs/lint/gap-leak.md)" in words


def test_json_is_one_document_with_the_place_in_numbers():
    status, said = call("leaky.jsonl", *SETTINGS, "--json")
    document = json.loads(said)
    assert (status, document["schema"], document["verdict"], document["file"]) == (1, 1, "broken", "leaky.jsonl")
    assert [found["code"] for found in document["findings"]] == [check.code for check in CHECKS]
    leak = next(found for found in document["findings"] if found["code"] == "gap-leak")
    assert leak["place"] == {"row": 0, "position": 0, "column": "advantages", "came": -0.125, "expected": 0.25}
    assert leak["page"] == "docs/lint/gap-leak.md"
    missing = next(found for found in document["findings"] if found["code"] == "returns-differ")
    assert (missing["verdict"], missing["missing"], missing["place"]) == ("not checkable", ["returns"], None)
    status, said = call("good.jsonl", *SETTINGS, "--json")
    assert (status, json.loads(said)["verdict"]) == (0, "holds")


def test_numbers_that_are_none_are_null_in_json(somewhere):
    (somewhere / "nan.jsonl").write_text('{"action_mask": [1, 0], "advantages": [1, NaN]}\n')
    status, said = call("nan.jsonl", "--json")
    place = next(found["place"] for found in json.loads(said)["findings"] if found["verdict"] == "broken")
    assert (status, place["came"], place["expected"]) == (1, None, 0.0)


def test_a_check_that_is_ignored_breaks_nothing():
    status, said = call("leaky.jsonl", *SETTINGS, "--ignore", "gap-leak")
    assert status == 0
    assert "gap-leak" not in said
    assert call("leaky.jsonl", *SETTINGS, "--ignore", "gap") == (
        2,
        "there is no check 'gap'; did you mean 'gap-leak'? known: " + ", ".join(check.code for check in CHECKS),
    )


def test_the_list_names_every_check_and_its_rule_and_needs_no_file():
    status, said = call("--list")
    assert status == 0
    assert all(check.code in said and check.rule in said for check in CHECKS)


def test_a_column_is_found_under_the_name_that_the_file_has_for_it(somewhere):
    (somewhere / "verl.jsonl").write_text(LEAKY.replace('"rewards"', '"token_level_rewards"'))
    assert call("verl.jsonl", *SETTINGS)[0] == 0
    assert call("verl.jsonl", *SETTINGS, "--column", "rewards=token_level_rewards")[0] == 1


def test_tolerance_and_recipe_are_options():
    assert call("leaky.jsonl", *SETTINGS, "--tolerance", "0.7")[0] == 0
    assert "recipe grpo does not" in call("leaky.jsonl", *SETTINGS, "--recipe", "grpo")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], ["name a file to lint", "--list"], id="no-file"),
        pytest.param(["gone.npz"], ["gone.npz", "no such file"], id="no-such-file"),
        pytest.param(["good.jsonl", "--recipe", "gpro"], ["good.jsonl", "did you mean 'grpo'"], id="recipe"),
        pytest.param(["good.jsonl", "--gamma", "2"], ["gamma must lie between 0 and 1"], id="gamma"),
        pytest.param(["good.jsonl", "--column", "rewards"], ["NAME=COLUMN, got 'rewards'"], id="half-a-column"),
        pytest.param(["good.jsonl", "--column", "reward=x"], ["did you mean 'rewards'"], id="unknown-name"),
    ],
)
def test_a_bad_call_ends_in_one_line(arguments, words):
    status, said = call(*arguments)
    assert status == 2
    assert all(word in said for word in words), said
    assert "\n" not in said.strip()


def test_hostile_names_stay_text(somewhere):
    (somewhere / "[red]x.jsonl").write_text('{"action_mask": [1], "[bold]y": 1}\n')
    said = call("[red]x.jsonl")[1]
    assert "[red]x.jsonl" in said
    assert "[bold]y" in said


def test_in_a_shell_the_status_says_what_happened():
    done = subprocess.run([sys.executable, "-m", "apportion", "lint", "gone.npz"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "apportion: gone.npz: there is no such file\n"
