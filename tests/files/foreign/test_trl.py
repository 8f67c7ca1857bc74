"""Completion logs of TRL: what its trainer wrote is read, its advantages come out, what a log leaves open is said."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from apportion.errors import InputError
from apportion.files import load
from apportion.files.foreign.trl import weights_of
from apportion.files.storage import read_rows
from apportion.ledger import apportion
from apportion.recipes import grpo
from apportion.rollouts import Rollouts

FIXTURES = Path(__file__).parents[1] / "fixtures"
REAL = FIXTURES / "trl-1.16.0.parquet"
LEAST: dict[str, Any] = {"step": 1, "prompt": "2 + 3?", "completion": "5", "right": 1.0}
NAN = math.nan


def loaded(tmp_path: Path, *rows: dict[str, Any], format: str | None = None) -> Rollouts:
    path = tmp_path / "completions.jsonl"
    path.write_text("".join(json.dumps(LEAST | row) + "\n" for row in rows), encoding="utf-8")
    return load(path, format=format)


def said(tmp_path: Path, *rows: dict[str, Any], format: str | None = None) -> list[str]:
    """What is warned of when these rows are read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded(tmp_path, *rows, format=format)
    return [str(warning.message) for warning in caught]


def error_of(tmp_path: Path, *rows: dict[str, Any], format: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, *rows, format=format)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_with_the_weights_of_the_run_our_grpo_gives_the_advantages_that_trl_logged() -> None:
    batch = load(REAL, format="trl:lines_reward=0.5,even_reward")

    ledger = apportion(batch, grpo())

    logged = torch.tensor([row["advantage"] for _, row in read_rows(REAL)], dtype=torch.float64)
    # TRL adds 1e-4 to the standard deviation, and gives the answer that no function scored 0
    ours = (ledger.advantage * ledger.mask).sum(1) / ledger.mask.sum(1).clamp(min=1)
    torch.testing.assert_close(ours.nan_to_num(), logged, rtol=1e-3, atol=0)


def test_a_reward_that_does_not_apply_is_left_out_of_the_sum_and_none_at_all_is_not_scored() -> None:
    batch = load(REAL, format="trl:lines_reward=0.5,even_reward=1")

    assert [row.outcome for row in batch.rows()] == [1.0, 0.5, 0.5, 1.5, 0.5, 2.0, 1.5, None]


def test_equal_step_and_prompt_are_a_group() -> None:
    batch = load(REAL, format="trl:even_reward,lines_reward=0.5")

    assert batch.group_names == ("step 1, prompt 0", "step 1, prompt 1")
    assert batch.groups.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_same_prompt_of_another_step_is_another_group(tmp_path: Path) -> None:
    batch = loaded(tmp_path, {}, {"step": 2}, {"prompt": "1 + 1?", "step": 2}, {})

    assert batch.groups.tolist() == [0, 1, 2, 0]
    assert batch.group_names == ("step 1, prompt 0", "step 2, prompt 0", "step 2, prompt 1")


def test_without_weights_every_column_of_numbers_counts_once_and_both_doubts_are_said() -> None:
    with pytest.warns(UserWarning, match="outcome") as caught:
        batch = load(REAL)

    first, second = (str(warning.message) for warning in caught)
    assert f"{REAL}: outcome = lines_reward + characters + even_reward" in first
    assert "format trl:lines_reward=1,characters=0.5" in first
    assert "in 2 of 2 groups the logged advantages do not follow the outcomes" in second
    assert [row.outcome for row in batch.rows()] == [10.0, 6.0, 6.0, 7.0, 6.0, 9.0, 7.0, 3.0]


def test_a_log_of_text_of_trl_0_28_is_read_without_a_word() -> None:
    rows = load(FIXTURES / "trl-0.28.0.parquet").rows()

    assert [(row.text, row.outcome, row.group) for row in rows] == [
        ("2 + 3?5", 1.0, "step 2, prompt 0"),
        ("2 + 3?6", 0.0, "step 2, prompt 0"),
        ("1 + 1?2", 1.0, "step 2, prompt 1"),
        ("1 + 1?2", 1.0, "step 2, prompt 1"),
    ]
    assert rows[0].action_mask == [False] * 4 + [True]
    assert rows[0].turns == [0] * 4 + [1]


def test_of_a_conversation_the_assistants_part_was_sampled_and_a_call_has_its_own_arguments_alone() -> None:
    first, second, unscored, _ = load(FIXTURES / "trl-1.16.0-tools.parquet").rows()

    assert first.text == 'Use the tools.\n2 + 3?\nadd({"a": 2, "b": 3})\n5\nIt is 5.\n'
    assert second.text == 'Use the tools.\n2 + 3?\nlook_up({"word": "sum"})\na total\nA total.\n'
    spans = zip(first.offsets or [], first.action_mask, strict=True)
    assert "".join(first.text[start:end] for (start, end), a in spans if a) == 'add({"a": 2, "b": 3})It is 5.'
    assert (first.outcome, unscored.outcome) == (1.0, None)


@pytest.mark.parametrize(
    ("rewards", "outcome"),
    [
        pytest.param({"right": None, "short": 2}, 2.0, id="null is not 0"),
        pytest.param({"right": NAN, "short": 2}, 2.0, id="NaN is not 0"),
        pytest.param({"right": NAN, "short": None}, None, id="none at all"),
        pytest.param({"right": 0, "short": 0.0}, 0.0, id="0 is a reward"),
        pytest.param({"right": 0.25, "short": -2}, -0.75, id="weights count"),
    ],
)
def test_the_outcome_is_the_weighted_sum_of_the_rewards_that_came(
    tmp_path: Path, rewards: dict[str, Any], outcome: float | None
) -> None:
    weights = "trl:right,short=0.5" if outcome == -0.75 else "trl:right,short=1"
    batch = loaded(tmp_path, {"short": 1.0}, rewards, format=weights)

    assert batch.rows()[1].outcome == outcome


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(["x", "y"], id="text"),
        pytest.param([True, False], id="truth values"),
        pytest.param([1.0, "y"], id="mixed"),
        pytest.param([None, None], id="nothing"),
    ],
)
def test_a_column_that_holds_other_things_than_numbers_is_no_reward(tmp_path: Path, column: list[Any]) -> None:
    batch = loaded(tmp_path, {"note": column[0]}, {"note": column[1], "right": 0.0})

    assert batch.outcome.tolist() == [1.0, 0.0]


def test_a_table_of_old_trl_with_its_step_as_text_and_one_reward_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text('{"step": "3", "prompt": "p", "completion": "c", "reward": 0.5}\n', encoding="utf-8")

    (row,) = load(path).rows()

    assert (row.group, row.outcome) == ("step 3, prompt 0", 0.5)


@pytest.mark.parametrize(
    ("advantages", "warned"),
    [
        pytest.param([-0.5, 0.5, 0.0], False, id="a rising line"),
        pytest.param([-5.0, 5.0, 0.0], False, id="a steeper one"),
        pytest.param([0.5, 1.5, 1.0], False, id="a line that was moved"),
        pytest.param([0.5, -0.5, 0.0], True, id="falling"),
        pytest.param([0.0, 0.0, 0.0], True, id="flat"),
        pytest.param([-0.5, 0.5, 0.4], True, id="no line"),
        pytest.param([-0.5, None, 0.5], True, id="not where one is missing"),
    ],
)
def test_advantages_that_are_no_rising_line_of_the_outcomes_are_said(
    tmp_path: Path, advantages: list[float | None], warned: bool
) -> None:
    rows = [{"right": r, "advantage": a} for r, a in zip([0.0, 1.0, 0.5], advantages, strict=True)]
    if advantages[1] is None:
        rows[2]["advantage"] = -0.75

    assert len(said(tmp_path, *rows)) == warned


@pytest.mark.parametrize(
    ("advantages", "warned"),
    [
        pytest.param([0.0, 1e-3], False, id="rounding"),
        pytest.param([-0.01, 0.01], False, id="as much as rounding may do"),
        pytest.param([-0.7, 0.7], True, id="apart"),
    ],
)
def test_answers_of_equal_outcome_have_equal_advantages_or_it_is_said(
    tmp_path: Path, advantages: list[float], warned: bool
) -> None:
    assert len(said(tmp_path, *({"advantage": a} for a in advantages))) == warned


def test_a_hundredth_of_the_largest_advantage_is_still_on_the_line(tmp_path: Path) -> None:
    # rising by 199 a reward; off that line by 1, 2 and 1, and the largest is 200
    rows = [{"right": float(r), "advantage": a} for r, a in enumerate([-198.0, -2.0, 200.0])]

    assert said(tmp_path, *rows) == []


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_size_of_the_rewards_does_not_matter(tmp_path: Path, scale: float) -> None:
    rows = [{"right": scale * r, "advantage": 2.0 * r} for r in (0.0, 0.5, 1.0)]

    assert said(tmp_path, *rows) == []


def test_two_columns_of_numbers_are_a_sum_that_is_said(tmp_path: Path) -> None:
    (warned,) = said(tmp_path, {"short": 0.5}, {"short": 1.0})

    assert "outcome = right + short: a log of TRL holds no weights" in warned


def test_groups_are_looked_at_one_by_one(tmp_path: Path) -> None:
    rows = [
        {"step": step, "right": right, "advantage": right * slope}
        for step, slope in ((1, 2), (2, -1))
        for right in (0, 1)
    ]

    (warned,) = said(tmp_path, *rows)

    assert "in 1 of 2 groups" in warned


def test_text_that_holds_tool_results_is_said_to_count_as_sampled(tmp_path: Path) -> None:
    (warned,) = said(tmp_path, {}, {"completion": "call\n<tool_response>5</tool_response>\nIt is 5"})

    assert "the completion of 1 of 2 rows holds tool results" in warned


@pytest.mark.parametrize(
    ("rows", "format", "words"),
    [
        pytest.param([{"right": math.inf}], None, ["line 1: right is inf", "null or NaN"], id="infinite reward"),
        pytest.param([{"right": 10**400}], None, ["line 1: right is 1000", "finite number"], id="beyond floats"),
        pytest.param([{}, {"step": [1]}], None, ["line 2: step is [1]"], id="step"),
        pytest.param([{"completion": 5}], None, ["line 1: completion must be text or a list of chat"], id="completion"),
        pytest.param([{"prompt": [1, 2]}], None, ["prompt must be text", "got a list of token ids"], id="ids"),
        pytest.param([{}], "trl:rigth", ["no column of numbers 'rigth'", "did you mean 'right'"], id="no such column"),
        pytest.param([{}], "trl:right=x", ["NAME=WEIGHT", "'right=x'"], id="a weight that is none"),
        pytest.param([{}], "trl:right=nan", ["NAME=WEIGHT", "'right=nan'"], id="a weight of NaN"),
        pytest.param([{}], "trl:right,", ["NAME=WEIGHT", "''"], id="no name"),
        pytest.param([{"right": "x"}], None, ["expected a column of numbers", "completion, right"], id="no reward"),
    ],
)
def test_what_cannot_be_right_is_refused(
    tmp_path: Path, rows: list[dict[str, Any]], format: str | None, words: list[str]
) -> None:
    found = error_of(tmp_path, *rows, format=format)

    assert all(word in found for word in words), found


@pytest.mark.parametrize("name", ["step", "prompt", "completion"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "completions.jsonl"
    short = {key: value for key, value in LEAST.items() if key != name}
    path.write_text(f"{json.dumps(LEAST)}\n{json.dumps(short)}\n", encoding="utf-8")

    with pytest.raises(InputError, match=f"line 2: the field '{name}' is missing; the row has {', '.join(short)}"):
        load(path)


def test_a_name_without_a_weight_counts_once() -> None:
    assert weights_of("a,b=-0.5,c=2") == {"a": 1.0, "b": -0.5, "c": 2.0}
