"""The command line as a user in a hurry meets it: one clear line, exit status 2, nothing half written."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli
from apportion.cli import crediting
from apportion.errors import ApportionError

ROW = {"prompt": "2+2?", "response": "2+2=4\n4", "outcome": 1.0, "group": "a"}


def call(*arguments):
    """Exit status, and what a terminal would show."""
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if isinstance(result.exception, ApportionError):
        return 2, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def plain_output(monkeypatch, tmp_path):
    monkeypatch.setattr(crediting, "console", Console(width=120, force_terminal=False))
    monkeypatch.chdir(tmp_path)


BAD_ROWS = [
    pytest.param("{", ["line 2", "not JSON"], id="bad-json"),
    pytest.param("[1]", ["line 2", "expected an object"], id="not-an-object"),
    pytest.param({"response": "x", "outcome": 1}, ["line 2", "'group' is missing"], id="missing-field"),
    pytest.param('{"response": "x", "group": 1, "outcome": NaN}', ["line 2", "outcome is nan", "null"], id="nan-score"),
    pytest.param(ROW | {"outcome": "good"}, ["line 2", "outcome is 'good'"], id="text-score"),
    pytest.param(ROW | {"schema": 9}, ["line 2", "schema 9"], id="unknown-schema"),
    pytest.param(ROW | {"action_mask": [True]}, ["line 2", "action_mask has 1 entries"], id="short-mask"),
    pytest.param(ROW | {"step_rewards": [1.0] * 9}, ["9 step rewards", "neither"], id="rewards-that-fit-nothing"),
]


@pytest.mark.parametrize(("row", "words"), BAD_ROWS)
def test_a_bad_row_is_named_and_nothing_is_written(tmp_path, row, words):
    source, target = write(tmp_path / "in.jsonl", ROW, row), tmp_path / "out.jsonl"
    status, said = call("credit", source, "--recipe", "grpo", "--out", target)
    assert status == 2
    assert all(word in said for word in words), said
    assert "\n" not in said.strip()
    assert list(tmp_path.iterdir()) == [source]


BAD_CALLS = [
    pytest.param(
        ["credit", "gone.jsonl", "--recipe", "grpo", "--out", "o.jsonl"],
        ["gone.jsonl", "no such file"],
        id="wrong-path",
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "gpro", "--out", "o.jsonl"], ["did you mean 'grpo'"], id="unknown-recipe"
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "grpo", "--out", "o.csv"], [".jsonl or .parquet"], id="wrong-ending"
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "vineppo", "--out", "o.jsonl"], ["no step_values"], id="values-not-given"
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "grpo", "--split", "line", "--out", "o.jsonl"],
        ["did you mean 'lines'"],
        id="unknown-splitter",
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "grpo", "--split", "after:(", "--out", "o.jsonl"],
        ["no regular expression"],
        id="bad-regex",
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "grpo", "--mix", "prof", "--out", "o.jsonl"],
        ["did you mean 'proof'"],
        id="unknown-mix",
    ),
    pytest.param(
        ["credit", "in.jsonl", "--recipe", "grpo", "--combine", "sum", "--out", "o.jsonl"],
        ["no way to combine 'sum'"],
        id="unknown-combine",
    ),
    pytest.param(["view", "gone"], ["gone", "no such file"], id="view-nothing"),
    pytest.param(["view", "."], ["holds no run"], id="view-a-folder-without-a-run"),
    pytest.param(["view", "in.jsonl", "--recipe", "gpro"], ["did you mean 'grpo'"], id="view-unknown-recipe"),
    pytest.param(["view", "in.jsonl", "--split", "lines"], ["--recipe"], id="view-split-without-recipe"),
    pytest.param(["view", "in.jsonl", "--out", "in.jsonl"], ["another --out"], id="view-over-its-source"),
    pytest.param(["train", "--recipe", "gpro"], ["did you mean 'grpo'"], id="train-unknown-recipe"),
    pytest.param(["train", "--model", "gone"], ["gone", "no such folder"], id="train-wrong-model"),
    pytest.param(["train", "--data", "gone.jsonl"], ["gone.jsonl"], id="train-wrong-data"),
    pytest.param(["train", "--config", "gone.toml"], ["gone.toml"], id="train-wrong-config"),
    pytest.param(["train", "--resume", "gone"], ["gone", "no run"], id="resume-nothing"),
    pytest.param(["train", "--set", "lr=1"], ["no setting 'lr'"], id="unknown-setting"),
    pytest.param(["train", "--set", "steps"], ["KEY=VALUE"], id="setting-without-value"),
    pytest.param(["train", "--set", "task=gym:chain_summ"], ["chain_sum"], id="unknown-gym-task"),
    pytest.param(["train", "--set", "task=chian"], ["chain"], id="unknown-task"),
    pytest.param(["train", "--set", "max_new_tokens=100000"], ["context"], id="longer-than-the-context"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD_CALLS)
def test_a_bad_call_ends_in_one_line_and_leaves_nothing_behind(tmp_path, arguments, words):
    write(tmp_path / "in.jsonl", ROW)
    status, said = call(*arguments)
    assert status == 2
    assert all(word in said for word in words), said
    assert "\n" not in said.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_bad_call_in_a_shell_prints_one_line_to_stderr_without_a_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "apportion", "credit", "gone.jsonl", "--recipe", "grpo", "--out", "o.jsonl"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "apportion: gone.jsonl: there is no such file\n"


def test_credit_writes_every_row_with_its_ledger_and_says_that_the_laws_hold(tmp_path):
    rows = [ROW, ROW | {"outcome": 0.0}, ROW | {"outcome": None}]
    source, target = write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl"
    status, said = call("credit", source, "--recipe", "grpo", "--out", target)
    assert status == 0
    assert "3 in 1 groups; 1 without credit" in said
    assert said.count("holds") == 5
    ledgers = [json.loads(line)["ledger"] for line in target.read_text().splitlines()]
    assert ledgers[0]["credit"] == [0.5]
    assert ledgers[1]["credit"] == [-0.5]
    assert ledgers[2]["credit"] is None


def test_given_step_values_become_step_credit(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW | {"step_values": [0.5, 0.75]})
    target = tmp_path / "out.jsonl"
    assert call("credit", source, "--recipe", "vineppo", "--out", target)[0] == 0
    assert json.loads(target.read_text())["ledger"]["credit"] == [0.25, 0.25]


def test_parquet_goes_in_and_comes_out(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW, ROW | {"outcome": 0.0})
    assert call("credit", source, "--recipe", "rloo", "--out", tmp_path / "once.parquet")[0] == 0
    assert call("credit", tmp_path / "once.parquet", "--recipe", "rloo", "--out", tmp_path / "twice.parquet")[0] == 0


def test_the_file_that_is_read_is_never_written_over(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW)
    before = source.read_bytes()
    status, said = call("credit", source, "--recipe", "grpo", "--out", source)
    assert (status, source.read_bytes()) == (2, before)
    assert "give another --out" in said


def test_cutting_an_answer_that_has_one_value_into_steps_warns(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW, ROW | {"outcome": 0.0})
    with pytest.warns(UserWarning, match="the last gets all its credit"):
        call("credit", source, "--recipe", "grpo", "--split", "lines", "--out", tmp_path / "out.jsonl")


def test_weights_that_would_have_no_effect_are_refused(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW | {"step_rewards": [1.0]})
    arguments = ["--mix", "chat", "--combine", "normalise_then_sum", "--out", tmp_path / "out.jsonl"]
    status, said = call("credit", source, "--recipe", "grpo", *arguments)
    assert status == 2
    assert "no effect" in said


def test_text_of_one_row_survives_ids_in_another(tmp_path):
    source = write(tmp_path / "in.jsonl", ROW, {"prompt": [1], "response": [2, 3], "outcome": 0, "group": "b"})
    assert call("credit", source, "--recipe", "reinforce", "--out", tmp_path / "out.jsonl")[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[0]["text"] == "2+2?2+2=4\n4"
    assert len(rows[0]["offsets"]) == len(rows[0]["prompt"]) + len(rows[0]["response"])
    assert "offsets" not in rows[1]


def test_explain_walks_to_its_end():
    status, said = call("explain")
    assert status == 0
    assert "4.3" in said


def test_explain_writes_a_page(tmp_path):
    assert call("explain", "--out", tmp_path / "walk.html")[0] == 0
    assert "4.3" in (tmp_path / "walk.html").read_text()


def test_the_settings_that_are_written_for_a_recipe_can_be_trained_with(tmp_path):
    assert call("config", "--recipe", "vineppo", "--out", "my.toml") == (0, "")
    text = (tmp_path / "my.toml").read_text()
    assert call("config", "--recipe", "vineppo") == (0, text)
    assert 'recipe = "vineppo"  # ' in text
    assert "\nmc_samples = 4  # " in text
    settings = ["--set", "prompts=1", "--set", "group=2", "--set", "held_out=0", "--set", "max_new_tokens=8"]
    status, shown = call("train", "--config", "my.toml", "--steps", 1, "--out", "run", *settings)
    assert status == 0, shown
    assert call("config", "--recipe", "gpro")[0] == 2


def test_view_writes_a_page_beside_the_file_and_opens_it_where_asked(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    source = write(tmp_path / "in.jsonl", ROW)

    assert call("view", source)[0] == 0
    assert opened == []
    assert call("view", source, "--out", "page.html", "--open", "--recipe", "reinforce") == (0, "written: page.html\n")

    assert opened == [(tmp_path / "page.html").as_uri()]
    assert "holds no credit" in (tmp_path / "in.html").read_text()
    assert "credit by <strong>reinforce</strong>" in (tmp_path / "page.html").read_text()


def test_view_shows_what_a_doctor_says_of_a_run(tmp_path, monkeypatch):
    finding = SimpleNamespace(code="AP07", level="error", said="entropy fell to 0.01", steps=(3, 9))
    check = SimpleNamespace(code="AP07", name="entropy-collapse", remedy="raise the entropy bonus")
    doctor = SimpleNamespace(CHECKS=(check,), diagnose=lambda run: [finding], __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "apportion.doctor", doctor)
    write(tmp_path / "config.toml", "steps = 1")

    assert call("view", ".")[0] == 0

    page = (tmp_path / "report.html").read_text()
    assert all(
        words in page for words in ("AP07", "Entropy collapse", "0.01 (steps 3 to 9)", "raise the entropy bonus")
    )
