"""Answers as the page holds them: every column in its place, None where nothing is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from apportion import ledger, recipes
from apportion.errors import InputError
from apportion.files import write_rows
from apportion.rollouts import collate
from apportion.view import shelf
from apportion.view.answers import STEP_COLUMNS, answer_of, limits, strip_of
from apportion.view.report import write_page
from batches import row
from pages import Page, make_run, page_of, saved_row


def test_credit_that_is_no_number_is_null_and_all_columns_keep_their_length(tmp_path: Path) -> None:
    dumped = saved_row(["<b>", "&", "\n"], [0.5, math.nan, -0.5], action_mask=[True, False, True])
    dumped["ledger"] |= {"step_of": [0, -1, 1]} | {name: [0.5, math.inf] for name in STEP_COLUMNS}

    page = page_of(tmp_path, [dumped])

    (answer,) = page.answers
    assert answer["advantage"] == [0.5, None, -0.5]
    assert answer["of"] == [0, -1, 1]
    assert answer["steps"]["value"] == [0.5, None]
    assert {len(answer[name]) for name in ("id", "text", "of", "advantage")} == {3}
    assert "<b>" not in page.source
    assert "&lt;b&gt;&amp;\n" in page.source


def test_an_answer_that_was_not_scored_has_null_and_not_0(tmp_path: Path) -> None:
    dumped = saved_row(["a", "b"], None, outcome=None)
    dumped["ledger"] |= {"value": None, "credit": None, "normalised": None}

    page = page_of(tmp_path, [dumped])

    (entry,), (answer,) = page.entries, page.answers
    assert (entry["outcome"], entry["size"], entry["drop"], answer["advantage"]) == (None, None, None, None)
    assert "credit" not in answer["steps"]


@pytest.mark.parametrize("name", list(recipes.BY_NAME))
def test_the_columns_of_every_recipe_are_those_of_its_ledger(tmp_path: Path, name: str) -> None:
    pieces = ["p", "b", "\n", "tool", "d"]
    rows = [row("paata", pieces, outcome=o, step_values=(0.25, 0.25, 0.5)) for o in (0.0, 1.0, None)]
    made = ledger.apportion(collate(rows), recipes.by_name(name))
    run = make_run(tmp_path)
    write_rows(run / "ledgers" / "step-000004.jsonl", made.rows())

    page = Page(write_page(run))

    assert page.data["shelves"][0]["name"] == 4
    assert page.bodies["0-0"]["prompt"] == {"id": [0], "text": ["p"]}
    assert [answer["text"] for answer in page.answers] == [pieces[1:]] * 3
    assert [answer["advantage"] is None for answer in page.answers] == [False, False, True]
    for n, answer in enumerate(page.answers[:2]):
        assert answer["of"] == made.steps.step_of[n, 1:].tolist()
        assert answer["advantage"] == pytest.approx(made.advantage[n, 1:].tolist(), rel=1e-3)
        assert answer["steps"]["value"] == pytest.approx(made.value[n, : made.steps.counts[n]].tolist(), rel=1e-3)


def test_parts_of_the_reward_are_there_where_there_is_more_than_one(tmp_path: Path) -> None:
    dumped = saved_row(["a"], [1.0])
    dumped["ledger"]["parts"] = {"process": [0.25], "outcome": [0.75]}

    (answer,) = page_of(tmp_path, [dumped]).answers

    assert (answer["steps"]["part process"], answer["steps"]["part outcome"]) == ([0.25], [0.75])


def test_the_probability_of_a_token_stays_beside_it(tmp_path: Path) -> None:
    dumped = saved_row(["p", "a", "b"], [0.0, 1.0, 1.0], prompt=[0], response=[1, 2], action_mask=[True, True])
    dumped |= {"token_logprobs": [-0.5, None]}

    (answer,) = page_of(tmp_path, [dumped]).answers

    assert answer["logprobs"] == [-0.5, None]


@pytest.mark.parametrize(
    ("columns", "outcome_of_it"),
    [
        pytest.param({"credit": [0.25, -0.5, 0.0]}, -0.5, id="of credit"),
        pytest.param({"credit": [0.25, 0.5, 0.0]}, 0, id="credit that never falls"),
        pytest.param({"credit": None, "value": [1.0, 0.25, 0.75]}, -0.75, id="of the value, without credit"),
        pytest.param({"credit": None, "value": None}, None, id="nothing known"),
    ],
)
def test_the_largest_drop(columns: dict[str, Any], outcome_of_it: float | None) -> None:
    dumped = saved_row(["a", "b", "c"], [0.0] * 3)
    dumped["ledger"] |= columns

    assert answer_of(dumped, "here").drop() == outcome_of_it


def test_a_cut_off_answer_counts_the_value_that_was_left(tmp_path: Path) -> None:
    dumped = saved_row(["a", "b"], None, ended=False, end_value=0.25)
    dumped["ledger"] |= {"credit": None, "value": [0.5, 1.0]}

    assert answer_of(dumped, "here").changes() == [0.5, -0.75]
    assert answer_of(dumped | {"ended": True}, "here").changes() == [0.5, None]


def test_answers_without_text_are_shown_by_their_ids(tmp_path: Path) -> None:
    bare = saved_row(["a", "b"], [1.0, 1.0], response=[11, 12])
    del bare["text"], bare["offsets"]

    page = page_of(tmp_path, [bare])

    (answer,) = page.answers
    assert (answer["id"], answer["text"]) == ([11, 12], None)
    assert "11 12" in page.source


def test_a_character_of_several_tokens_goes_to_the_last_and_one_of_none_to_the_next() -> None:
    spelled = saved_row(["a", "b", "c"], [1.0] * 3, text="é x", offsets=[[0, 1], [0, 1], [2, 3]])

    assert answer_of(spelled, "here").text == ["", "é", " x"]


def test_prompts_that_differ_stay_with_their_answers(tmp_path: Path) -> None:
    rows = [saved_row(["p", "a"], [0.0, 1.0], prompt=[first], response=[9]) for first in (1, 2)]

    page = page_of(tmp_path, rows)

    assert page.bodies["0-0"]["prompt"]["id"] == []
    assert [answer["id"] for answer in page.answers] == [[1, 9], [2, 9]]


def test_where_the_room_ends_groups_with_most_credit_are_held_and_all_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "TOKENS", 5)
    rows = [saved_row(["a", "b"], [size, size], group=g) for g in range(3) for size in (g / 4, -g / 4)]

    page = page_of(tmp_path, rows)

    assert [group["held"] for group in page.data["shelves"][0]["groups"]] == [0, 0, 2]
    assert page.data["shelves"][0]["strongest"] == 2
    assert len(page.entries) == 6
    assert list(page.bodies) == ["0-2"]


def test_an_answer_longer_than_the_room_is_held_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "TOKENS", 1)

    page = page_of(tmp_path, [saved_row(["a", "b", "c"], [1.0] * 3)])

    assert page.answers[0]["text"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("advantages", "limit"),
    [
        pytest.param([0.25, -1.5], 1.5, id="largest-of-either-sign"),
        pytest.param([0.0, 0.0], 0.0, id="all-zero"),
        pytest.param([0.0123, None], 0.013, id="rounded-up-to-two-digits"),
        pytest.param([1.0] * 400 + [900.0], 1.0, id="one-of-hundreds-does-not-count"),
    ],
)
def test_full_colour_is_one_size_both_ways(advantages: list[float | None], limit: float) -> None:
    answer = answer_of(saved_row(["a"] * len(advantages), advantages), "here")

    assert limits([answer])["advantage"] == limit


def test_a_strip_keeps_the_largest_of_every_piece() -> None:
    entries: list[Any] = [0.0] * 400
    entries[17], entries[395], entries[399] = -1.0, 0.5, None

    strip = strip_of(entries, 1.0)

    assert (len(strip), strip[0], strip[1], strip[39]) == (40, "M", "A", "S")
    assert set(strip[2:39]) == {"M"}


def test_a_column_of_another_length_is_refused_with_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, [saved_row(["a", "b"], [1.0])])

    with pytest.raises(InputError, match=r"step-000000.jsonl, line 1: advantage has 1 entries where 2 were expected"):
        write_page(run)


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(InputError, match="here: schema 9 is unknown"):
        answer_of(saved_row(["a"], [1.0], schema=9), "here")
