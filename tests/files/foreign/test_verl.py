"""Rollout dumps of verl: both trainers' files are read, and a session of several outputs is one rollout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.files import load
from apportion.rollouts import Rollout, Rollouts

FIXTURES = Path(__file__).parents[1] / "fixtures"
LEAST: dict[str, Any] = {"input": "2 + 3?", "output": "5", "gts": "5", "score": 1.0, "step": 4}


def loaded(tmp_path: Path, *rows: dict[str, Any]) -> Rollouts:
    path = tmp_path / "4.jsonl"
    path.write_text("".join(json.dumps(LEAST | row) + "\n" for row in rows), encoding="utf-8")
    return load(path)


def sampled(row: Rollout) -> str:
    assert row.text is not None
    return "".join(row.text[start:end] for (start, end), a in zip(row.offsets or [], row.action_mask, strict=True) if a)


def test_a_dump_of_the_ray_trainer_is_grouped_by_step_and_input() -> None:
    rows = load(FIXTURES / "verl-0.9.1.jsonl").rows()

    assert [(row.group, row.outcome, row.id) for row in rows] == [
        ("step 3, prompt 0", 1.0, "r0"),
        ("step 3, prompt 0", 0.0, "r1"),
        ("step 3, prompt 1", 1.0, "r2"),
        ("step 3, prompt 1", 1.0, "r3"),
    ]
    assert rows[0].text == "user\n2 + 3?\nassistant\n2 + 3 = 5"
    assert sampled(rows[0]) == "2 + 3 = 5"


def test_a_dump_of_trainer_v1_has_one_rollout_a_session_and_one_group_a_prompt() -> None:
    rows = load(FIXTURES / "verl-0.9.1-v1.jsonl").rows()

    assert [(row.id, row.group, row.outcome) for row in rows] == [
        ("0c9d_0", "0c9d", 1.0),
        ("0c9d_1", "0c9d", 0.0),
        ("7f3a_0", "7f3a", 1.0),
        ("7f3a_1", "7f3a", 0.0),
    ]
    assert rows[0].text == ("user\n1 + 1?\nassistant\nI write it down: 1 + 1user\n1 + 1?\nSo far: 1 + 1\nassistant\n2")
    assert sampled(rows[0]) == "I write it down: 1 + 12"
    assert sorted(set(rows[0].turns or [])) == [0, 1, 2, 3]


def test_outputs_of_a_session_are_put_in_order_of_their_number(tmp_path: Path) -> None:
    (row,) = loaded(
        tmp_path,
        {"uid": "a_0_10", "output": "third"},
        {"uid": "a_0_2", "output": "second"},
        {"uid": "a_0_0", "output": "first"},
    ).rows()

    assert row.text == "2 + 3?first2 + 3?second2 + 3?third"


def test_the_score_of_a_session_is_its_last_outputs_and_what_is_not_taken_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 2 sessions have outputs of different scores; the last one's is taken"):
        batch = loaded(
            tmp_path,
            {"uid": "a_0_1", "score": 1.0},
            {"uid": "a_0_0", "score": 0.0},
            {"uid": "a_1_0", "score": 0.5},
            {"uid": "a_1_1", "score": 0.5},
        )

    assert batch.outcome.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("uid", "group"),
    [
        pytest.param("7f-3a", "7f-3a", id="one part"),
        pytest.param("a_0", "a_0", id="two parts"),
        pytest.param("a_x_0", "a_x_0", id="no numbers"),
        pytest.param("a_0_" + "9" * 5000, "a_0_" + "9" * 5000, id="no number of an output"),
        pytest.param("a_b_0_0", "a_b", id="a prompt with an underscore"),
    ],
)
def test_a_uid_of_another_form_names_the_group(tmp_path: Path, uid: str, group: str) -> None:
    rows = loaded(tmp_path, {"uid": uid}, {"uid": "other"})

    assert rows.group_names == (group, "other")


def test_rows_of_one_uid_that_names_no_session_stay_apart(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"uid": "a"}, {"uid": "a"}, {"uid": None}).groups.tolist() == [0, 0, 1]


def test_no_score_is_not_a_score_of_0(tmp_path: Path) -> None:
    assert [row.outcome for row in loaded(tmp_path, {"score": None}, {"score": 0}).rows()] == [None, 0.0]


def test_outputs_that_hold_tool_results_are_said_to_count_as_sampled(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"4\.jsonl: the output of 1 of 2 rows holds tool results"):
        loaded(tmp_path, {}, {"output": "call<tool_response>5</tool_response>"})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"score": float("nan")}, "line 2: score is nan; expected a finite number, or null", id="NaN"),
        pytest.param({"score": "1"}, "line 2: score is '1'; expected a finite number", id="text as score"),
        pytest.param({"input": ["2"]}, "line 2: input must be text; input[0] is '2'", id="input"),
        pytest.param({"output": [1]}, "line 2: output must be text; got a list of token ids", id="ids"),
        pytest.param({"uid": 5}, "line 2: uid is 5; expected text", id="uid"),
        pytest.param({"uid": "a_0_0"}, "line 2: uid a_0_0 came before, ", id="the same output twice"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, {"uid": "a_0_0"}, row)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["input", "output", "score"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "4.jsonl"
    short = {key: value for key, value in LEAST.items() if key != name}
    path.write_text(f"{json.dumps(LEAST)}\n{json.dumps(short)}\n", encoding="utf-8")

    with pytest.raises(InputError, match=f"line 2: the field '{name}' is missing; the row has {', '.join(short)}"):
        load(path)
