"""Batches of public bug reports, worked by hand: the right numbers pass and the wrong ones are named."""

from __future__ import annotations

import pytest

from apportion.errors import InputError
from apportion.lint import lint

NAN, INF = float("nan"), float("inf")


def findings(columns: dict) -> dict:
    return {found.code: found for found in lint(columns)}


def broken(columns: dict) -> list[str]:
    return [found.code for found in lint(columns) if found.verdict == "broken"]


# A tool gap, with garbage at every masked place.
GAP = {
    "rewards": [[0.1, 9, 9, -0.2, 1.0], [0, 0.3, -0.5, 7, 7]],
    "values": [[0.4, NAN, 50, 0.6, 0.5], [0.2, 0.1, 0.3, INF, -40]],
    "action_mask": [[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]],
    "advantages": [[0.2472, 0.0, 0.0, 0.01, 0.5], [-0.18632, -0.106, -0.8, 0.0, 0.0]],
    "returns": [[0.6472, 0.0, 0.0, 0.61, 1.0], [0.01368, -0.006, -0.5, 0.0, 0.0]],
    "gamma": 0.9,
    "lam": 0.8,
}


def test_credit_that_steps_over_a_gap_is_right_whatever_stands_in_it():
    assert broken(GAP) == ["reward-unsampled"]  # 9 and 7 are rewards that nothing accounts for
    clean = GAP | {"rewards": [[0.1, 0, NAN, -0.2, 1.0], [0, 0.3, -0.5, NAN, NAN]]}
    assert broken(clean) == []


def test_a_wrong_first_number_of_a_turn_is_found_there():
    wrong = GAP | {"rewards": [[0.1, 0, 0, -0.2, 1.0], [0, 0.3, -0.5, 0, 0]]}
    wrong["advantages"] = [[-0.016332, 0.0, 0.0, 0.01, 0.5], GAP["advantages"][1]]
    found = findings(wrong)["gap-leak"]
    assert (found.verdict, found.place.row, found.place.position) == ("broken", 0, 0)
    assert found.place.expected == pytest.approx(0.2472)


# The critic says 123 in padding.
PADDED = {
    "rewards": [[0.0, 0.0, 1.0, 0, 0]],
    "values": [[0.3, 0.5, 0.6, 123.0, 123.0]],
    "action_mask": [[1, 1, 1, 0, 0]],
    "gamma": 1.0,
    "lam": 0.95,
}


def test_padding_does_not_bootstrap():
    assert broken(PADDED | {"advantages": [[0.656, 0.48, 0.4, 0.0, 0.0]]}) == []
    last = 1 + 123 - 0.6
    leaky = [0.2 + 0.95 * (0.1 + 0.95 * last), 0.1 + 0.95 * last, last, 0.0, 0.0]
    found = findings(PADDED | {"advantages": [leaky]})["padding-leak"]
    assert found.verdict == "broken"
    assert "first padding value" in found.pattern or "in the padding after the last token" in found.pattern


PACKED = {
    "rewards": [[0, 0, 1.0, 0.5, 0, -1.0]],
    "values": [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]],
    "segments": [[0, 0, 0, 1, 2, 2]],
    "action_mask": [[1, 1, 1, 1, 1, 1]],
    "gamma": 0.9,
    "lam": 0.8,
}


def test_packed_rollouts_are_told_apart_even_if_one_is_a_single_token():
    assert broken(PACKED | {"advantages": [[0.49328, 0.574, 0.7, 0.1, -1.112, -1.6]]}) == []
    leaky = PACKED | {"advantages": [[0.586353, 0.703268, 0.879539, -0.25064, -1.112, -1.6]]}
    assert broken(leaky) == ["segment-leak"]


def by_id(advantages: list[float]) -> dict:
    rewards = [1.0, 5.0, 3.0, 7.0, 5.0, 2.0]
    return {
        "rewards": [[reward] for reward in rewards],
        "action_mask": [[1]] * 6,
        "groups": ["q1", "q2", "q1", "q3", "q2", "q1"],
        "advantages": [[a] for a in advantages],
        "recipe": "grpo",
    }


def test_groups_are_those_of_the_ids():
    assert broken(by_id([-1.0, 0.0, 1.0, 0.0, 0.0, 0.0])) == []


@pytest.mark.parametrize(
    ("advantages", "words"),
    [
        pytest.param(
            [-1.27135, 0.523497, -0.373927, 1.420921, 0.523497, -0.822638], "whole batch is one group", id="whole-batch"
        ),
        pytest.param([-2.0, 2.0, -2.0, 2.0, 1.5, -1.5], "windows of 2", id="windows"),
    ],
)
def test_groups_that_are_not_are_named(advantages, words):
    columns = by_id(advantages)
    assert broken(columns) == ["group-statistics", "equal-group-credit"]
    assert words in findings(columns)["group-statistics"].pattern
    assert words in findings(columns)["equal-group-credit"].pattern


def siblings(advantages: list) -> dict:
    """One answer could not be scored, one lost all its tokens; they are in one group with three others."""
    return {
        "rewards": [[NAN], [1.0], [0.0], [100.0], [0.5]],
        "action_mask": [[1], [1], [1], [0], [1]],
        "groups": [0] * 5,
        "advantages": [[a] for a in advantages],
        "recipe": "dr_grpo",
    }


def test_who_was_not_scored_or_sampled_nothing_has_no_vote():
    assert broken(siblings([0.0, 0.5, -0.5, 0.0, 0.0])) == []
    wrong = siblings([-20.3, -19.3, -20.3, 79.7, -19.8])
    assert broken(wrong)[0] == "group-statistics"
    assert "not scored, or sampled nothing, vote" in findings(wrong)["group-statistics"].pattern


def test_the_mean_of_micro_batch_means_is_not_the_token_mean():
    columns = {
        "token_loss": [[2.0, 4.0, 50.0, 50.0], [1.0, 1.0, 1.0, 1.0]],
        "action_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
        "micro_batch": [0, 1],
        "reduction": "token_mean",
    }
    assert broken(columns | {"loss": 1.666667}) == []
    found = findings(columns | {"loss": 2.0})["reduction-differs"]
    assert found.verdict == "broken"
    assert "micro-batches are averaged" in found.pattern
    assert "loss is 2, expected 1.66667 (token_mean)" in found.said


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        pytest.param("token_mean", 1.666667, id="token-mean"),
        pytest.param("sequence_mean", 2.0, id="sequence-mean"),
        pytest.param("sequence_sum", 5.0, id="sequence-sum"),
        pytest.param("fixed_divisor", 1.25, id="fixed-divisor"),
    ],
)
def test_each_reduction_is_recognised(name, loss):
    columns = {
        "token_loss": [[2.0, 4.0, 50.0, 50.0], [1.0, 1.0, 1.0, 1.0]],
        "action_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
        "divisor": 8,
        "loss": loss,
    }
    found = findings(columns)["reduction-differs"]
    assert (found.verdict, found.said) == ("holds", f"the loss is {name}")


def test_a_number_of_the_last_row_spread_over_it_in_all_rows_is_found():
    masks = [[0, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    columns = {"action_mask": masks, "recipe": "reinforce"}
    assert broken(columns | {"advantages": [[0, 0, 0.7, 0.7, 0.7], [0.7, 0, 0, 0, 0.7]]}) == []
    copied = columns | {"advantages": [[0.7, 0, 0, 0, 0.7], [0.7, 0, 0, 0, 0.7]]}
    assert broken(copied) == ["uneven-answer", "environment-credit"]


def test_dense_rewards_that_are_summed_are_warned_of():
    columns = {
        "rewards": [[1, 0, 0, 0], [0, 0, 0, 1]],
        "action_mask": [[1, 1, 1, 1], [1, 1, 1, 1]],
        "groups": [0, 0],
        "gamma": 1.0,
    }
    summed = columns | {"advantages": [[0] * 4, [0] * 4], "recipe": "grpo"}
    assert broken(summed) == ["dense-summed"]
    assert "dense rewards are being summed to one scalar" in findings(summed)["dense-summed"].said
    assert broken(columns | {"advantages": [[1, 0, 0, 0], [1, 1, 1, 1]], "recipe": "to_go"}) == []


@pytest.mark.parametrize(
    "rewards",
    [pytest.param([1.0], id="scalar"), pytest.param([[0, 0.5, 0, 0.5]], id="per-token")],
)
def test_a_reward_may_be_one_number_an_answer_or_one_a_token(rewards):
    columns = {"action_mask": [[1, 1, 1, 1]], "rewards": rewards, "recipe": "to_go", "gamma": 1.0}
    to_go = [[1.0] * 4] if rewards == [1.0] else [[1.0, 1.0, 0.5, 0.5]]
    assert broken(columns | {"advantages": to_go}) == []


@pytest.mark.parametrize("rewards", [pytest.param([[0.1, 0.2, 0.3]], id="three"), pytest.param([[0.2, 0.8]], id="two")])
def test_rewards_that_fit_neither_are_refused(rewards):
    with pytest.raises(InputError, match=rf"row 0: rewards has {len(rewards[0])} entries, action_mask has 4"):
        lint({"action_mask": [[1, 1, 1, 1]], "rewards": rewards})
