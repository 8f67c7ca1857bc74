"""Token exports of prime-rl: ids, masks and log-probabilities are kept; advantages stand in where rewards are gone."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.files import load
from apportion.ledger import apportion
from apportion.recipes import dr_grpo, reinforce
from apportion.rollouts import Rollouts

FIXTURES = Path(__file__).parents[1] / "fixtures"
LEAST: dict[str, Any] = {
    "schema_version": 1,
    "step": 5,
    "rank": 0,
    "export_sequence_idx": 3,
    "env_name": "sums",
    "token_ids": [11, 21, 91, 22],
    "loss_mask": [False, True, False, True],
    "advantages": [0.0, 0.5, 0.0, 0.5],
    "rewards": [1.0, 1.0, 1.0, 1.0],
    "inference_logprobs": [0.0, -0.5, 0.0, -0.25],
}


def loaded(tmp_path: Path, *rows: dict[str, Any]) -> Rollouts:
    path = tmp_path / "rank_0.jsonl"
    path.write_text("".join(json.dumps(LEAST | row) + "\n" for row in rows), encoding="utf-8")
    return load(path)


def said(tmp_path: Path, *rows: dict[str, Any]) -> tuple[Rollouts, list[str]]:
    """The rollouts, and what is warned of when they are read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = loaded(tmp_path, *rows)
    return batch, [str(warning.message) for warning in caught]


def test_an_export_with_rewards_is_read_as_it_stands() -> None:
    rows = load(FIXTURES / "prime-rl-2026-06.jsonl").rows()

    assert [row.tokens for row in rows] == [[11, 12, 21, 22], [11, 12, 23], [31, 21, 91, 22]]
    assert [row.action_mask for row in rows] == [
        [False, False, True, True],
        [False, False, True],
        [False, True, False, True],
    ]
    assert [row.outcome for row in rows] == [1.0, 0.0, 1.0]
    assert [row.group for row in rows] == ["step 5, prompt 0", "step 5, prompt 0", "step 5, prompt 1"]
    assert [row.id for row in rows] == ["5/0/0", "5/0/1", "5/0/2"]
    assert rows[2].turns == [0, 1, 2, 3]
    assert rows[0].logprobs is not None
    assert [None if math.isnan(p) else p for p in rows[0].logprobs] == [None, None, -0.5, -0.25]


def test_without_rewards_the_advantage_is_the_outcome_and_it_is_said() -> None:
    with pytest.warns(UserWarning, match="holds no rewards; each sequence's advantage") as caught:
        batch = load(FIXTURES / "prime-rl-2026-08.jsonl")

    assert len(caught) == 1
    assert batch.outcome.tolist() == [0.5, -0.5, 0.25]


def test_reinforce_gives_back_the_advantages_of_an_export_without_rewards() -> None:
    path = FIXTURES / "prime-rl-2026-08.jsonl"
    exported = [json.loads(line)["advantages"] for line in path.read_text().splitlines()]
    with pytest.warns(UserWarning, match="no rewards"):
        batch = load(path)

    advantage = apportion(batch, reinforce()).advantage

    assert [row[: len(came)] for row, came in zip(advantage.tolist(), exported, strict=True)] == exported


def test_advantages_give_a_whole_group_the_credit_that_its_rewards_give_it(tmp_path: Path) -> None:
    pairs = [(1.0, 0.75), (0.0, -0.25), (0.0, -0.25), (0.0, -0.25)]
    rewarded = loaded(tmp_path, *({"rewards": [r] * 4, "advantages": [0, a, 0, a]} for r, a in pairs))
    bare, _ = said(tmp_path, *({"rewards": None, "advantages": [0, a, 0, a]} for _, a in pairs))

    assert apportion(bare, dr_grpo()).advantage.tolist() == apportion(rewarded, dr_grpo()).advantage.tolist()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"step": 6}, id="another step"),
        pytest.param({"env_name": "words"}, id="another environment"),
        pytest.param({"token_ids": [12, 21, 91, 22]}, id="another prompt"),
    ],
)
def test_a_group_has_step_environment_and_prompt_in_common(tmp_path: Path, other: dict[str, Any]) -> None:
    assert loaded(tmp_path, {}, {"token_ids": [11, 5, 5, 5]}, other).groups.tolist() == [0, 0, 1]


def test_a_reward_of_null_is_not_scored_and_it_is_said(tmp_path: Path) -> None:
    batch, warned = said(tmp_path, {}, {"rewards": [None] * 4})

    assert [row.outcome for row in batch.rows()] == [1.0, None]
    assert len(warned) == 1
    assert "1 of 2 sequences count as not scored" in warned[0]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"advantages": [0.0, 0.5, 0.0, 0.25]}, id="advantages that differ"),
        pytest.param({"rl_weights": [1.0, 0.0, 0.0, 0.0]}, id="no weight in the policy gradient"),
        pytest.param({"loss_mask": [False] * 4}, id="nothing sampled"),
    ],
)
def test_a_sequence_whose_advantage_says_nothing_is_not_scored(tmp_path: Path, fields: dict[str, Any]) -> None:
    bare = {"rewards": None}
    batch, warned = said(tmp_path, bare | {"rl_weights": [0.0, 0.0, 0.0, 1.0]}, bare | fields)

    assert [row.outcome for row in batch.rows()] == [0.5, None]
    assert len(warned) == 2
    assert "1 of 2 sequences count as not scored" in warned[1]


def test_rl_weights_of_null_are_the_defaults(tmp_path: Path) -> None:
    batch, _ = said(tmp_path, {"rewards": None, "rl_weights": [None] * 4})

    assert batch.outcome.tolist() == [0.5]


def test_null_and_other_rewards_where_nothing_was_sampled_are_not_looked_at(tmp_path: Path) -> None:
    batch = loaded(
        tmp_path,
        {"rewards": [None, 1.0, 9.0, 1.0], "inference_logprobs": [None, -0.5, 7.0, -0.25], "advantages": [None] * 4},
    )

    assert batch.outcome.tolist() == [1.0]
    assert batch.logprobs is not None


def test_a_log_probability_that_is_missing_where_it_was_sampled_is_said(tmp_path: Path) -> None:
    batch, warned = said(tmp_path, {"inference_logprobs": [0.0, None, 0.0, -0.25]})

    assert batch.logprobs is None
    assert len(warned) == 1
    assert "1 of 1 sequences have no inference_logprobs at some sampled token" in warned[0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"schema_version": 2}, "schema_version is 2; this version reads 1", id="another schema"),
        pytest.param({"schema_version": None}, "schema_version is None; this version reads 1", id="no schema"),
        pytest.param({"token_ids": "abcd"}, "token_ids is str; expected a list of whole numbers", id="ids as text"),
        pytest.param({"token_ids": [11, 2.5, 91, 22]}, "token_ids[1] is 2.5; expected a whole number", id="an id"),
        pytest.param({"loss_mask": [True]}, "loss_mask has 1 entries for 4 tokens", id="mask too short"),
        pytest.param(
            {"loss_mask": None}, "loss_mask is null; expected a list with one entry a token", id="mask of null"
        ),
        pytest.param({"loss_mask": [0, 1, 0, 2]}, "loss_mask[3] is 2; expected true or false", id="mask"),
        pytest.param({"rewards": [1.0]}, "rewards has 1 entries for 4 tokens", id="rewards too short"),
        pytest.param(
            {"rewards": [1.0, 1.0, 1.0, 0.0]},
            "rewards[3] is 0.0 and rewards[1] is 1.0; expected one reward a sequence",
            id="two rewards",
        ),
        pytest.param(
            {"rewards": [1.0, 1.0, 1.0, None]}, "rewards[3] is None and rewards[1] is 1.0", id="a reward and null"
        ),
        pytest.param({"rewards": [math.inf] * 4}, "rewards[1] is inf; expected a finite number", id="infinite reward"),
        pytest.param({"inference_logprobs": [0]}, "inference_logprobs has 1 entries for 4 tokens", id="logprobs"),
        pytest.param(
            {"inference_logprobs": [0, 0.5, 0, 0]}, "inference_logprobs[1] is 0.5; expected a number of", id="positive"
        ),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, {}, row)

    assert f"rank_0.jsonl, line 2: {words}" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"advantages": [0, None, 0, 0]}, "advantages[1] is None; expected a finite number", id="null"),
        pytest.param({"advantages": [0, 1, 0, math.nan]}, "advantages[3] is nan; expected a finite number", id="NaN"),
        pytest.param({"advantages": [0]}, "advantages has 1 entries for 4 tokens", id="too short"),
        pytest.param({"advantages": None}, "advantages is null; expected a list with", id="null in all"),
    ],
)
def test_an_advantage_that_is_needed_must_be_a_number(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, {"rewards": None} | row)

    assert f"line 1: {words}" in str(caught.value)


@pytest.mark.parametrize("name", ["token_ids", "loss_mask", "advantages"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rank_0.jsonl"
    rows = [{key: value for key, value in LEAST.items() if key not in ("rewards", *drop)} for drop in ((), (name,))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    with pytest.raises(InputError, match=f"line 2: the field '{name}' is missing"):
        load(path)
