"""`apportion doctor` as a user in a hurry meets it."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli
from apportion.cli import judging
from apportion.doctor import CHECKS
from apportion.errors import ApportionError


@pytest.fixture(autouse=True)
def somewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(judging, "console", Console(width=160, force_terminal=False))
    monkeypatch.chdir(tmp_path)
    for name, cut in (("cut", 0.9), ("well", 0.1)):
        rows = [{"step": n, "completions/clipped_ratio": cut, "reward": 0.3, "loss": 0.1} for n in range(12)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"log_history": rows}))


def call(*arguments: str) -> tuple[int, str]:
    """Exit status, and what a terminal would show."""
    result = CliRunner().invoke(cli.app, ["doctor", *arguments])
    if isinstance(result.exception, ApportionError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_finding_is_shown_with_evidence_reason_remedy_page_and_the_runs_own_names():
    status, said = call("cut.json")
    words = " ".join(said.split())
    assert status == 0
    assert "D07 error truncation-starved" in words
    assert "90% of answers are cut off at the limit. Steps 0 to 11, by completions/clipped_ratio." in words
    assert "Why: An answer that is cut off" in words
    assert "Do: Raise the limit on new tokens" in words
    assert "docs/doctor/D07-truncation-starved.md" in words


def test_checks_that_could_not_run_say_what_to_log():
    words = " ".join(call("well.json")[1].replace("│", " ").split())
    assert "nothing found by" in words
    assert "D03 logprob-mismatch not logged: mismatch_mean or surprise_over_entropy" in words
    assert "sampling/sampling_logp_difference" in words


@pytest.mark.parametrize(
    ("run", "fail_on", "status"),
    [
        pytest.param("cut.json", [], 0, id="nothing-asked"),
        pytest.param("cut.json", ["error"], 1, id="level"),
        pytest.param("cut.json", ["note"], 1, id="a-milder-level"),
        pytest.param("cut.json", ["D07"], 1, id="code"),
        pytest.param("cut.json", ["truncation-starved"], 1, id="name"),
        pytest.param("cut.json", ["D04"], 0, id="another-code"),
        pytest.param("cut.json", ["D04", "D07"], 1, id="several"),
        pytest.param("well.json", ["note"], 0, id="well"),
    ],
)
def test_the_exit_status_is_1_where_what_was_asked_for_is_found(run, fail_on, status):
    assert call(run, *(word for asked in fail_on for word in ("--fail-on", asked)))[0] == status


def test_a_warning_is_no_error(tmp_path):
    rows = [{"step": n, "completions/clipped_ratio": 0.3, "reward": 0.3} for n in range(12)]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    assert call("some.json", "--fail-on", "error")[0] == 0
    assert call("some.json", "--fail-on", "warning")[0] == 1


def test_json_is_one_document():
    status, said = call("cut.json", "--json", "--fail-on", "error")
    document = json.loads(said)
    assert (status, document["schema"], document["run"], document["steps"]) == (1, 1, "cut.json", [0, 11])
    [found] = document["findings"]
    assert (found["code"], found["name"], found["level"]) == ("D07", "truncation-starved", "error")
    assert (found["steps"], found["called"], found["follows"]) == ([0, 11], ["completions/clipped_ratio"], [])
    assert found["figures"]["truncated"] == 0.9
    assert len(document["well"]) + len(document["skipped"]) + 1 == len(CHECKS)


def test_the_list_names_every_check_and_its_rule_and_needs_no_run():
    status, said = call("--list")
    assert status == 0
    assert all(word in said for check in CHECKS for word in (check.code, check.name, check.rule))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], ["name a run folder or log", "--list"], id="no-run"),
        pytest.param(["gone"], ["gone", "no such file or folder"], id="no-such-run"),
        pytest.param(["well.json", "--fail-on", "eror"], ["'eror'", "did you mean 'error'"], id="level"),
        pytest.param(["well.json", "--fail-on", "D99"], ["'D99'", "D01"], id="code"),
    ],
)
def test_a_bad_call_ends_in_one_line(arguments, words):
    status, said = call(*arguments)
    assert status == 2
    assert all(word in said for word in words), said
    assert "\n" not in said.strip()


def test_hostile_names_stay_text(tmp_path):
    rows = [{"step": n, "rewards/[red]accuracy/mean": 0.3, "completions/clipped_ratio": 0.9} for n in range(12)]
    (tmp_path / "[bold]x.json").write_text(json.dumps(rows))
    assert "[bold]x.json" in call("[bold]x.json")[1]
