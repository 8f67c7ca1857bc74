"""Rewards: where they stand, what became of them, and what was made of them."""

from __future__ import annotations

import pytest

from lint.findings import GAE, INF, NAN, answers, broken, exact, findings, where


@pytest.mark.parametrize(
    ("rewards", "place"),
    [
        pytest.param([[0, 0.5, 1.0], [0, 1.0, 0]], (0, 1, 0.5, 0.0), id="tool-token"),
        pytest.param([[0, 0, 1.0], [0, 1.0, -0.5]], (1, 2, -0.5, 0.0), id="padding"),
        pytest.param([[0, -INF, 1.0], [0, 1.0, 0]], (0, 1, -INF, 0.0), id="infinite"),
        pytest.param([[0, NAN, 1.0], [0, 1.0, NAN]], None, id="nan-stands-for-nothing"),
    ],
)
def test_a_reward_at_a_token_that_was_not_sampled_is_found(rewards, place):
    found = findings(GAE | {"rewards": rewards})["reward-unsampled"]
    assert (found.verdict == "broken") == (place is not None)
    assert place is None or where(found) == place


def test_a_rollout_without_a_sampled_token_may_have_a_reward():
    columns = GAE | {"action_mask": [[1, 0, 1], [0, 0, 0]], "rewards": [[0, 0, 1.0], [0, 1.0, 1.0]]}
    found = findings(columns | {"advantages": [[0.25, 0, 0.5], [0, 0, 0]]})
    assert found["reward-unsampled"].verdict == "holds"
    assert found["reward-unsampled"].said == "1 rewards, all at sampled tokens"


def test_where_the_reward_stands_and_what_became_of_it_is_said():
    lost = GAE | {"rewards": [[0, 0.5, 1.0], [0, 1.0, 0.25]]}
    assert (
        "2 of them, the first at a token that was not sampled; no credit accounts"
        in findings(lost)["reward-unsampled"].said
    )
    padding = GAE | {"rewards": [[0, 0, 1.0], [0, 1.0, 0.25]]}
    assert "1 of them, the first in padding" in findings(padding)["reward-unsampled"].said
    wrong = lost | {"advantages": [[0.25, 0, -0.5], [0.5, 0.5, 0]]}
    assert "the credit is wrong besides" in findings(wrong)["reward-unsampled"].said
    bare = {"action_mask": [[1, 0]], "rewards": [[0.0, 1.0]]}
    assert "most frameworks drop them" in findings(bare)["reward-unsampled"].said
    assert "most frameworks drop them" in findings(bare | {"recipe": "vineppo"})["reward-unsampled"].said


KL = {"action_mask": [[1, 0, 0, 0, 1]], "kl": [[0.25, 0.5, 1.0, 0.5, 0.25]]}


@pytest.mark.parametrize(
    ("rewards", "is_kl"),
    [
        pytest.param([-0.125, -0.25, -0.5, -0.25, 1.0], True, id="half-of-it"),
        pytest.param([-0.125, -0.25, -0.5, -0.125, 1.0], False, id="not-everywhere"),
        pytest.param([0.125, 0.25, 0.5, 0.25, 1.0], False, id="paid-for-it"),
        pytest.param([0.0, -0.25, 0.0, 0.0, 1.0], False, id="one-place-says-too-little"),
    ],
)
def test_a_kl_penalty_on_tool_tokens_is_called_one(rewards, is_kl):
    found = findings(KL | {"rewards": [rewards]})["reward-unsampled"]
    assert found.verdict == "broken"
    assert ("KL penalty" in found.pattern) == is_kl


def test_kl_of_the_tool_tokens_adds_up_to_what_was_found_elsewhere():
    rewards = [[-0.1, -2.5, -2.5, -2.5, -0.05, 0.8]]
    columns = {"action_mask": [[1, 0, 0, 0, 1, 1]], "kl": [[0.2, 5, 5, 5, 0.1, 0.4]], "gamma": 0.9, "recipe": "to_go"}
    right = columns | {"rewards": [[-0.1, 0, 0, 0, -0.05, 0.8]], "advantages": [[0.503, 0, 0, 0, 0.67, 0.8]]}
    assert broken(right) == []
    leaky = columns | {"rewards": rewards, "advantages": [[-5.757913, 0, 0, 0, 0.67, 0.8]]}
    assert broken(leaky)[0] == "reward-unsampled"


@pytest.mark.parametrize(
    ("rewards", "kl"), [pytest.param([-1.0, -1.25], "KL", id="at"), pytest.param([-1.0, -1.375], "", id="past")]
)
def test_a_kl_penalty_may_be_off_by_the_tolerance(rewards, kl):
    columns = {"action_mask": [[0, 0, 1]], "rewards": [[*rewards, 1.0]], "kl": [[2.0, 2.0, 2.0]]}
    assert bool(exact(columns, 0.25)["reward-unsampled"].pattern) == bool(kl)


def test_what_became_of_it_is_said_of_whole_answers_too():
    columns = {
        "action_mask": [[1, 0]] * 3,
        "rewards": [[0, 1.0], [0, 0], [2.0, 0]],
        "groups": [0] * 3,
        "recipe": "dr_grpo",
    }
    counted = findings(columns | {"advantages": [[0, 0], [-1.0, 0], [1.0, 0]]})
    assert "the credit counts them" in counted["reward-unsampled"].said
    assert counted["group-statistics"].verdict == "holds"
    assert counted["reward-lost"].verdict == "holds"
    dropped = findings(columns | {"advantages": [[-2 / 3, 0], [-2 / 3, 0], [4 / 3, 0]]})
    assert "they are lost" in dropped["reward-unsampled"].said
    other = findings(columns | {"advantages": [[0.25, 0], [1, 0], [0, 0]]})
    assert "the credit is wrong besides" in other["reward-unsampled"].said


def test_a_reward_that_is_lost_is_lost_in_whole_answers_too():
    columns = answers(rewards=[[1.5, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]])
    assert broken(columns) == ["reward-lost", "dense-summed"]
    assert where(findings(columns)["reward-lost"]) == (0, 0, -1.0, -0.25)
    assert findings(answers(advantages=[[5.0] * 3] * 4))["reward-lost"].verdict == "not checkable"
    assert findings(answers())["reward-lost"].said == "the advantages are those of the summed rewards"
    strangers = answers(advantages=[[1.0, 0, 1.0], [3.0, 3.0, 0], [0, 2.0, 2.0], [2.0, 0, 2.0]])
    assert findings(strangers)["reward-lost"].said == "wrong for another reason"


def test_dense_rewards_have_a_place_but_no_number_that_should_stand_there():
    found = findings(answers(rewards=[[0, 0, 1.0], [0.5, 2.5, 0], [0, 0, 2.0], [0, 0, 2.0]]))["dense-summed"]
    assert where(found) == (1, 0, 0.5, None)
    assert found.said.endswith("row 1, position 0: rewards is 0.5")
    assert findings(answers())["dense-summed"].verdict == "holds"
    assert findings({"action_mask": [[1]], "recipe": "grpo"})["dense-summed"].missing == ("rewards",)
