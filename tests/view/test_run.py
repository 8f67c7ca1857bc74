"""The page of a run: honest about what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.recipes import by_name
from apportion.view.report import write_page
from pages import Page, make_run, page_of, saved_row, write_logs


def test_curves_have_one_length_and_null_where_nothing_was_logged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_logs(run)

    curves = Page(write_page(run)).data["curves"]

    assert {len(curve) for curve in curves.values()} == {2}
    assert (curves["pass_rate"], curves["kl"]) == ([0.25, None], [None, 0.5])
    assert curves["tokens_per_second"] == [None, 1234]
    assert "entropy" not in curves


def cut_a_log(run: Path) -> None:
    write_logs(run)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "pass_r')


def evaluate_no_problem(run: Path) -> None:
    (run / "evaluations.json").write_text('{"before": {"passed": 0, "scored": 0, "rate": NaN, "low": 0, "high": 1}}')


@pytest.mark.parametrize(
    ("damage", "steps"),
    [
        pytest.param(lambda run: None, 0, id="only-a-config"),
        pytest.param(lambda run: (run / "ledgers").rmdir(), 0, id="no-ledgers-folder"),
        pytest.param(lambda run: (run / "metrics.jsonl").touch(), 0, id="empty-metrics"),
        pytest.param(cut_a_log, 2, id="last-line-cut-short"),
        pytest.param(evaluate_no_problem, 0, id="no-problem-tested"),
    ],
)
def test_an_unfinished_run_has_a_page(tmp_path: Path, damage: Callable[[Path], object], steps: int) -> None:
    run = make_run(tmp_path)
    damage(run)

    page = Page(write_page(run))

    assert len(page.data["curves"]["step"]) == steps
    assert page.source.count("not tested") == 2


@pytest.mark.parametrize(("budget", "unfinished"), [(100, False), (101, True)])
def test_a_run_that_spent_its_tokens_is_finished(tmp_path: Path, budget: int, unfinished: bool) -> None:
    run = make_run(tmp_path)
    with (run / "config.toml").open("a") as config:
        config.write(f"token_budget = {budget}\n")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 0, "generated_tokens": 100}) + "\n")

    assert ("not finished" in Page(write_page(run)).source) == unfinished


def test_the_page_holds_the_first_and_the_last_ledger_and_says_how_many_there_are(tmp_path: Path) -> None:
    data = page_of(tmp_path, *[[saved_row(["a"], [1.0])]] * 15).data

    assert [shelf["name"] for shelf in data["shelves"]] == [0, 2, 4, 6, 8, 10, 12, 14]
    assert data["ledgers_total"] == 15


@pytest.mark.parametrize(
    ("low", "words"),
    [pytest.param(0.5, "The intervals do not overlap", id="apart"), pytest.param(0.3, "overlap:", id="overlapping")],
)
def test_the_headline_gives_both_pass_rates_with_their_intervals(tmp_path: Path, low: float, words: str) -> None:
    run = make_run(tmp_path)
    before = {"passed": 16, "scored": 64, "rate": 0.25, "low": 0.16, "high": 0.37}
    after = {"passed": 40, "scored": 64, "rate": 0.625, "low": low, "high": 0.73}
    (run / "evaluations.json").write_text(json.dumps({"before": before, "after": after}))

    source = Page(write_page(run)).source

    assert "16.0 to 37.0 %" in source
    assert "62.5<small>%</small>" in source
    assert words in source
    assert "vineppo</strong> on <strong>chain" in source


def test_settings_stand_with_their_meaning_and_unset_ones_say_so(tmp_path: Path) -> None:
    source = page_of(tmp_path).source

    assert "<td>7</td><td>all chance in a run follows from it</td>" in source
    assert '<span class="none">not set</span></td><td>JSONL of prompts' in source


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run \(there is no config.toml"):
        write_page(tmp_path)


def test_the_credit_of_a_run_is_not_worked_out_anew(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a recipe or a format is for files alone"):
        write_page(make_run(tmp_path), recipe=by_name("grpo"))


def test_a_broken_line_inside_a_log_is_refused_with_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')

    with pytest.raises(InputError, match=r"metrics.jsonl, line 2: not JSON"):
        write_page(run)
