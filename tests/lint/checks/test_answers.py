"""Credit of whole answers, group by group."""

from __future__ import annotations

import pytest
import torch

from apportion.lint import lint
from lint.findings import EDGE, GAE, NAN, answers, broken, exact, findings, where


@pytest.mark.parametrize(
    ("recipe", "size"),
    [
        pytest.param("dr_grpo", 1.0, id="dr_grpo"),
        pytest.param("rloo", 2.0, id="rloo"),
        pytest.param("grpo", 0.5**0.5, id="grpo-sample"),
        pytest.param("grpo", 1.0 / (2**0.5 + 1e-4), id="grpo-plus-epsilon"),
        pytest.param("grpo", 1.0 / (1.0 + 1e-6), id="grpo-population"),
        pytest.param("grpo", 1.0 / (2 / 3) ** 0.5, id="grpo-batch-sample"),
        pytest.param("grpo", 1.0 / (2 / 4) ** 0.5, id="grpo-batch-population"),
    ],
)
def test_the_numbers_of_a_recipe_hold(recipe, size):
    columns = answers(recipe=recipe)
    columns["advantages"] = [[size * a for a in row] for row in columns["advantages"]]
    assert broken(columns) == []


def test_how_advantages_were_scaled_is_said():
    said = findings(
        answers(recipe="grpo", advantages=[[-(0.5**0.5), 0, -(0.5**0.5)], [0.5**0.5] * 2 + [0], [0] * 3, [0] * 3])
    )
    assert (
        said["group-statistics"].said == "rewards less the recipe's baseline, divided by the group's sample deviation"
    )
    assert findings(answers())["group-statistics"].said == "rewards less the recipe's baseline, not scaled"


def test_the_expected_number_of_an_answer_is_scaled_as_the_recipe_says():
    masks = answers()["action_mask"]
    windows = [[a * m for m in mask] for a, mask in zip([-1.0, 1.0, -2.0, 2.0], masks, strict=True)]
    rewards = [[0, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 6.0]]
    found = findings(answers(recipe="grpo", rewards=rewards, groups=["a", "b", "b", "a"], advantages=windows))
    assert "windows of 2" in found["group-statistics"].pattern
    assert where(found["group-statistics"]) == (0, 0, -1.0, pytest.approx(-(0.5**0.5)))


def test_answers_that_are_right_are_not_the_place():
    columns = answers(
        groups=["a", "a", "a", "b"], advantages=[[-1.0, 0, -1.0], [1.0, 1.0, 0], [0, 4.0, 4.0], [0, 0, 0]]
    )
    assert where(findings(columns)["group-statistics"]) == (2, 1, 4.0, 0.0)


def test_equal_rewards_below_0_are_equal():
    columns = answers(rewards=[[0, 0, -1.0], [0, -1.0, 0], [0, 0, -2.0], [0, 0, -2.0]], advantages=[[0, 0, 0]] * 4)
    assert (
        findings(columns)["equal-group-credit"].said
        == "4 rollouts in groups where all rewards are equal, all exactly 0"
    )


def test_the_last_reward_is_that_of_the_last_sampled_token():
    columns = answers(recipe="reinforce", rewards=[[4.0, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]])
    columns["advantages"] = [[1.0, 0, 1.0], [3.0, 3.0, 0], [0, 2.0, 2.0], [2.0, 0, 2.0]]
    assert "only the reward at the last token counts" in findings(columns)["reward-lost"].pattern


@pytest.mark.parametrize(
    ("recipe", "numbers", "words"),
    [
        pytest.param("grpo", [-1.0, 1.0, 0, 0], "", id="grpo-by-population-is-fine"),
        pytest.param("dr_grpo", [-2.0, 2.0, 0, 0], "numbers of recipe rloo", id="rloo"),
        pytest.param("rloo", [-1.0, 1.0, 0, 0], "numbers of recipe", id="its-own-reward-in-the-baseline"),
        pytest.param("dr_grpo", [1.0, 3.0, 2.0, 2.0], "numbers of recipe reinforce", id="no-baseline"),
        pytest.param("dr_grpo", [-1.0, 1.0, 0.25, 0], None, id="only-an-equal-group"),
        pytest.param("dr_grpo", [-1.0, 0.75, 0, 0], "not the numbers of recipe dr_grpo", id="unknown"),
    ],
)
def test_other_numbers_are_named_where_they_are_known(recipe, numbers, words):
    masks = answers()["action_mask"]
    spread_out = [[a * m for m in mask] for a, mask in zip(numbers, masks, strict=True)]
    found = findings(answers(recipe=recipe, advantages=spread_out))["group-statistics"]
    assert (found.verdict == "broken") == bool(words)
    assert not words or words in found.said


def test_the_place_of_a_wrong_answer_is_its_first_sampled_token():
    columns = answers(advantages=[[-1.0, 0, -1.0], [1.0, 1.0, 0], [0, 0.5, 0.5], [0, 0, 0]])
    assert broken(columns) == ["equal-group-credit"]
    assert where(findings(columns)["equal-group-credit"]) == (2, 1, 0.5, 0.0)


def test_a_reward_of_the_whole_answer_is_needed_and_the_group():
    columns = answers()
    del columns["groups"]
    assert findings(columns)["group-statistics"].missing == ("groups",)
    assert findings(columns)["reward-lost"].missing == ("groups",)
    bare = columns | {"recipe": "reinforce", "advantages": [[1.0, 0, 1.0], [3.0, 3.0, 0], [0, 2.0, 2.0], [2.0, 0, 2.0]]}
    assert broken(bare) == []
    assert findings(bare)["reward-lost"].verdict == "holds"
    assert findings(bare)["group-statistics"].said == "recipe reinforce compares with nothing"


def test_an_answer_that_was_not_scored_has_no_credit():
    rewards = [[0, 0, NAN], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]]
    silent = [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert broken(answers(rewards=rewards, advantages=silent)) == []
    found = findings(answers(rewards=rewards, advantages=[[0, 0, -1.0], *silent[1:]]))["unscored-credit"]
    assert where(found) == (0, 2, -1.0, 0.0)
    assert findings(answers(rewards=rewards, advantages=silent))["unscored-credit"].said == "1 rollouts not scored"
    nan = findings(answers(rewards=rewards, advantages=[[0, 0, NAN], *silent[1:]]))
    assert (nan["unscored-credit"].verdict, nan["not-finite"].verdict) == ("broken", "holds")


def test_tokens_of_an_answer_that_differ_are_found():
    columns = answers(advantages=[[-1.0, 0, -1.0], [1.0, 0.5, 0], [0, 0, 0], [0, 0, 0]])
    assert broken(columns) == ["uneven-answer"]
    assert where(findings(columns)["uneven-answer"]) == (1, 1, 0.5, 1.0)
    assert (
        findings(GAE | {"recipe": "gae"})["uneven-answer"].said
        == "recipe gae does not give one number to a whole answer"
    )


@EDGE
def test_an_answer_may_be_off_by_the_tolerance(off, verdict):
    columns = {"action_mask": [[1], [1], [1]], "rewards": [[1.0], [3.0], [8.0]], "recipe": "dr_grpo", "groups": [0] * 3}
    found = exact(columns | {"advantages": [[off - 3.0], [-1.0], [4.0]]}, 0.25)
    assert found["group-statistics"].verdict == verdict


@EDGE
def test_the_tolerance_of_an_answer_shrinks_and_grows_with_its_scale(off, verdict):
    columns = {"action_mask": [[1], [1]], "rewards": [[0.0], [4.0]], "recipe": "grpo", "groups": [0, 0]}
    found = exact(columns | {"advantages": [[-1.0 - off], [1.0 + off]]}, 0.5)  # population deviation 2
    assert found["group-statistics"].verdict == verdict


WIDE = 4096


@pytest.mark.parametrize("recipe", ["to_go", "dr_grpo"])
def test_tokens_that_were_not_sampled_allow_nothing(recipe):
    mask = torch.zeros(2, WIDE)
    mask[:, -1] = 1
    columns = {"action_mask": mask, "rewards": mask * torch.tensor([[1.0], [0.0]]), "groups": [0, 0], "gamma": 1.0}
    right = torch.tensor([[1.0], [0.0]]) if recipe == "to_go" else torch.tensor([[0.5], [-0.5]])
    for off, verdict in ((0.0, []), (1e-4, ["credit-differs"] if recipe == "to_go" else ["group-statistics"])):
        advantages = mask * (right + torch.tensor([[off], [0.0]]))
        found = lint(columns | {"advantages": advantages, "recipe": recipe})
        assert [each.code for each in found if each.verdict == "broken"] == verdict


def test_an_answer_without_a_sampled_token_would_vote_with_all_its_rewards():
    columns = {
        "action_mask": [[1, 0], [1, 0], [0, 0]],
        "rewards": [[1.0, 0.0], [3.0, 0.0], [4.0, 4.0]],
        "groups": [0, 0, 0],
        "recipe": "dr_grpo",
    }
    assert broken(columns | {"advantages": [[-1.0, 0], [1.0, 0], [0, 0]]}) == []
    found = findings(columns | {"advantages": [[-3.0, 0], [-1.0, 0], [0, 0]]})["group-statistics"]
    assert found.pattern == "rollouts without a sampled token vote"


def test_an_answer_that_was_not_scored_would_vote_with_0():
    columns = {"action_mask": [[1]] * 3, "rewards": [[1.0], [5.0], [NAN]], "groups": [0] * 3, "recipe": "dr_grpo"}
    assert broken(columns | {"advantages": [[-2.0], [2.0], [0.0]]}) == []
    found = findings(columns | {"advantages": [[-1.0], [3.0], [0.0]]})["group-statistics"]
    assert found.pattern == "rollouts that were not scored vote with reward 0"


def test_an_answer_alone_in_its_group_keeps_its_reward_unscaled_under_grpo():
    columns = {"action_mask": [[1]] * 3, "rewards": [[0.0], [4.0], [3.0]], "groups": [0, 0, 1], "recipe": "grpo"}
    found = findings(columns | {"advantages": [[-(0.5**0.5)], [0.5**0.5], [3.0]]})
    assert found["equal-group-credit"].pattern.startswith("a rollout alone in its group keeps its reward")
    assert found["group-statistics"].verdict == "holds"


def test_rewards_at_tool_tokens_may_be_counted_without_a_wrong_group():
    columns = {
        "action_mask": [[1, 0], [1, 0], [1, 0]],
        "rewards": [[1.0, 2.0], [1.0, 0.0], [NAN, 0.0]],
        "groups": [0, 0, 0],
        "recipe": "dr_grpo",
        "advantages": [[1.0, 0], [-1.0, 0], [0, 0]],
    }
    found = findings(columns)
    assert found["group-statistics"].said.startswith("wrong for another reason; rewards less")
    assert "the credit counts them" in found["reward-unsampled"].said
