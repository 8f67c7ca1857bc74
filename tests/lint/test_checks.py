"""The checks one by one: where each holds, where it breaks, and what it needs."""

from __future__ import annotations

import pytest
import torch

from apportion.lint import CHECKS, Finding, lint

NAN, INF = float("nan"), float("inf")
GAE = {
    "action_mask": [[1, 0, 1], [1, 1, 0]],
    "valid_mask": [[1, 1, 1], [1, 1, 0]],
    "rewards": [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]],
    "values": [[0.5, 4.0, 0.5], [0.25, 0.5, 0.0]],
    "advantages": [[0.25, 0.0, 0.5], [0.5, 0.5, 0.0]],
    "gamma": 1.0,
    "lam": 0.5,
}


def findings(columns: dict) -> dict[str, Finding]:
    return {found.code: found for found in lint(columns)}


def broken(columns: dict) -> list[str]:
    return [found.code for found in lint(columns) if found.verdict == "broken"]


def where(found: Finding) -> tuple:
    assert found.place is not None, found
    return found.place.row, found.place.position, found.place.came, found.place.expected


def test_there_is_one_finding_a_check_in_the_order_of_the_report():
    assert [found.code for found in lint(GAE)] == [check.code for check in CHECKS]


# bad-layout, not-finite


def test_a_sampled_token_in_padding_stops_all_other_checks():
    found = lint(GAE | {"action_mask": [[1, 0, 1], [1, 1, 1]]})
    assert where(found[0]) == (1, 2, 1.0, 0.0)
    assert {each.verdict for each in found[1:]} == {"not checkable"}
    assert found[5].said == "mend bad-layout first"


def test_without_an_action_mask_nothing_is_checkable_and_it_says_so():
    found = lint({"advantages": [[0.5]]})
    assert {(each.verdict, each.missing) for each in found} == {("not checkable", ("action_mask",))}


@pytest.mark.parametrize(
    ("segments", "place"),
    [
        pytest.param([[0, 1, 0, 2]], "segment 0 comes back after another one: row 0, position 2", id="comes-back"),
        pytest.param(
            [[0, 0, 1, 1], [5, 5, 4, 5]], "segment 5 comes back after another one: row 1, position 3", id="later"
        ),
        pytest.param([[3, 1, -1, 3]], "row 0, position 3", id="after-padding"),
        pytest.param([[0, 0, 1, 1], [0, 0, 1, 1]], "", id="same-ids-in-two-rows"),
        pytest.param([[0, -1, 0, 1]], "", id="padding-within"),
    ],
)
def test_a_segment_id_may_not_come_back_in_its_row(segments, place):
    found = lint({"action_mask": [[0] * 4] * len(segments), "segments": segments})[0]
    assert (found.verdict == "broken") == bool(place)
    assert place in found.said


def test_the_layout_says_what_was_found():
    said = lint(GAE | {"rewards": [[0.0, 0.0, NAN], [0.0, 1.0, 0.0]]})[0].said
    assert said == "2 rollouts in 2 rows of 3; 4 sampled tokens of 5; 1 rollouts not scored (NaN)"
    assert lint(GAE)[0].said == "2 rollouts in 2 rows of 3; 4 sampled tokens of 5"


@pytest.mark.parametrize("number", [NAN, INF, -INF], ids=["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", ["values", "advantages", "returns"])
def test_a_number_that_is_none_is_found_where_it_is_used_and_nowhere_else(name, number):
    columns = GAE | {"returns": [[0.75, 0, 1.0], [0.75, 1.0, 0]]}
    behind = columns | {name: [[columns[name][0][0], number, 0.5], columns[name][1]]}
    assert findings(behind)["not-finite"].verdict == "holds"
    used = columns | {name: [columns[name][0], [columns[name][1][0], number, 0.0]]}
    assert f"row 1, position 1: {name} is {number}" in findings(used)["not-finite"].said


def test_a_column_that_holds_no_numbers_is_not_used_and_not_called_missing_in_silence():
    found = findings(GAE | {"values": [[0.5, 0.0, NAN], [0.25, 0.5, 0.0]]})
    assert found["gap-leak"].said == "missing: values (came, but see not-finite)"
    assert found["environment-credit"].verdict == "holds"
    assert found["group-statistics"].said == "missing: groups, recipe"


def test_an_infinite_reward_is_no_score_and_nan_is_none():
    assert findings(GAE | {"rewards": [[0, 0, INF], [0, 1, 0]]})["not-finite"].verdict == "broken"
    assert findings(GAE | {"rewards": [[0, INF, 1], [0, 1, 0]]})["not-finite"].verdict == "holds"
    assert findings(GAE | {"rewards": [[0, 0, NAN], [0, 1, 0]]})["not-finite"].verdict == "holds"


# reward-unsampled


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


# credit of tokens


def test_gae_of_the_right_steps_holds_and_says_how_closely():
    found = findings(GAE)
    assert broken(GAE) == []
    assert found["gap-leak"].said == "advantages within 0.0e+00, not normalised"
    assert found["segment-leak"].said == "no row holds several rollouts"
    assert found["returns-differ"].missing == ("returns",)


def test_a_batch_without_a_gap_or_padding_says_so():
    found = findings(
        {"action_mask": [[1, 1]], "rewards": [[0.0, 1.0]], "gamma": 1.0, "recipe": "to_go", "advantages": [[1, 1]]}
    )
    assert (found["gap-leak"].said, found["padding-leak"].said) == (
        "the batch has no tool gap",
        "no padding follows a rollout",
    )


@pytest.mark.parametrize("name", ["rewards", "values", "gamma", "lam", "action_mask"])
def test_what_is_missing_is_named(name):
    found = findings({column: value for column, value in GAE.items() if column != name})["gap-leak"]
    assert (found.verdict, found.missing) == ("not checkable", (name,))


def test_advantages_or_returns_are_enough():
    without = {name: column for name, column in GAE.items() if name != "advantages"}
    assert findings(without)["gap-leak"].missing == ("advantages or returns",)
    returns = without | {"returns": [[0.75, 0, 1.0], [0.75, 1.0, 0]]}
    assert findings(returns)["gap-leak"].verdict == "holds"
    assert findings(returns)["returns-differ"].missing == ("advantages",)
    assert findings(returns)["whitening-smeared"].missing == ("advantages",)
    assert findings(without | {"returns": [[0.75, 0, 9.0], [0.75, 1.0, 0]]})["credit-differs"].verdict == "broken"


def test_reward_to_go_needs_neither_values_nor_lam():
    columns = {name: GAE[name] for name in ("action_mask", "rewards")} | {"recipe": "to_go"}
    assert findings(columns)["gap-leak"].missing == ("gamma", "advantages or returns")
    assert broken(columns | {"gamma": 0.5, "advantages": [[0.5, 0, 1.0], [0.5, 1.0, 0]]}) == []


def test_values_have_no_say_in_reward_to_go():
    columns = GAE | {"recipe": "to_go", "gamma": 0.5, "advantages": [[0.5, 0, 1.0], [0.5, 1.0, 0]]}
    assert broken(columns | {"returns": columns["advantages"]}) == []


@pytest.mark.parametrize("recipe", ["grpo", "vineppo"])
def test_credit_of_tokens_does_not_concern_other_recipes(recipe):
    found = findings(GAE | {"recipe": recipe})["gap-leak"]
    assert found.said == f"recipe {recipe} does not give each token credit of its own"
    assert found.missing == ()


def test_what_was_expected_after_the_end_comes_in_with_the_last_step():
    # 0.5 more at the end of the first row: the second ended by itself
    columns = GAE | {"end_values": [0.5, None], "advantages": [[0.5, 0.0, 1.0], [0.5, 0.5, 0.0]]}
    assert broken(columns) == []
    assert "credit-differs" in broken(columns | {"end_values": None}) or "end-bootstrap" in broken(
        columns | {"end_values": None}
    )


def test_numbers_that_nothing_explains_are_reported_once():
    wrong = GAE | {"advantages": [[0.25, 0.0, -0.75], [0.5, 2.0, 0.0]]}
    found = findings(wrong)
    assert broken(wrong) == ["credit-differs"]
    assert where(found["credit-differs"]) == (0, 2, -0.75, 0.5)
    assert found["gap-leak"].verdict == "not checkable"
    assert "see credit-differs" in found["gap-leak"].said
    assert found["whitening-smeared"].verdict == "not checkable"


def test_returns_that_are_right_speak_for_the_leaks_when_advantages_are_not():
    columns = GAE | {"advantages": [[0.25, 0.0, -0.75], [0.5, 2.0, 0.0]], "returns": [[0.75, 0, 1.0], [0.75, 1.0, 0]]}
    found = findings(columns)
    assert broken(columns) == ["credit-differs"]
    assert "the returns are right, they are not" in found["credit-differs"].said
    assert found["gap-leak"].verdict == "holds"
    assert found["returns-differ"].verdict == "holds"


def test_returns_that_are_wrong_are_found_beside_right_advantages():
    columns = GAE | {"returns": [[0.75, 0, 1.0], [0.75, 1.5, 0]]}
    assert broken(columns) == ["returns-differ"]
    assert where(findings(columns)["returns-differ"]) == (1, 1, 1.5, 1.0)


def test_when_both_are_wrong_returns_are_not_blamed_twice():
    columns = GAE | {"advantages": [[0.25, 0.0, -0.75], [0.5, 2.0, 0.0]], "returns": [[5.0, 0, 1.0], [0.75, 1.0, 0]]}
    found = findings(columns)
    assert broken(columns) == ["credit-differs"]
    assert "no known fault gives them" in found["credit-differs"].said
    assert found["returns-differ"].verdict == "not checkable"


def test_the_expected_number_of_whitened_advantages_is_whitened():
    columns = {"action_mask": [[1, 0, 1, 1]], "rewards": [[0.0, 0.0, 0.0, 4.0]], "gamma": 0.5, "recipe": "to_go"}
    right, leaky = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 2.0, 4.0])  # gamma is paid in the gap

    def whitened(raw: torch.Tensor) -> list[list[float]]:
        first, *rest = ((raw - raw.mean()) / raw.std()).tolist()
        return [[first, 0.0, *rest]]

    assert broken(columns | {"advantages": whitened(right)}) == []
    found = findings(columns | {"advantages": whitened(leaky)})
    assert found["gap-leak"].place.came == pytest.approx(whitened(leaky)[0][0], abs=1e-5)
    assert found["gap-leak"].place.expected == pytest.approx(whitened(right)[0][0], abs=1e-5)
    assert found["whitening-smeared"].verdict == "holds"


# whole answers


def answers(**changes) -> dict:
    columns = {
        "action_mask": [[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]],
        "rewards": [[0, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]],
        "groups": ["a", "a", "b", "b"],
        "advantages": [[-1.0, 0, -1.0], [1.0, 1.0, 0], [0, 0, 0], [0, 0, 0]],
        "recipe": "dr_grpo",
    }
    return columns | changes


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


def test_a_reward_that_is_lost_is_lost_in_whole_answers_too():
    columns = answers(rewards=[[1.5, 0, 1.0], [0, 3.0, 0], [0, 0, 2.0], [0, 0, 2.0]])
    assert broken(columns) == ["reward-lost", "dense-summed"]
    assert where(findings(columns)["reward-lost"]) == (0, 0, -1.0, -0.25)
    assert findings(answers(advantages=[[5.0] * 3] * 4))["reward-lost"].verdict == "not checkable"


def test_dense_rewards_have_a_place_but_no_number_that_should_stand_there():
    found = findings(answers(rewards=[[0, 0, 1.0], [0.5, 2.5, 0], [0, 0, 2.0], [0, 0, 2.0]]))["dense-summed"]
    assert where(found) == (1, 0, 0.5, None)
    assert found.said.endswith("row 1, position 0: rewards is 0.5")
    assert findings(answers())["dense-summed"].verdict == "holds"
    assert findings({"action_mask": [[1]], "recipe": "grpo"})["dense-summed"].missing == ("rewards",)


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


# silence


@pytest.mark.parametrize("number", [1e-30, -1.0, NAN, INF], ids=str)
def test_an_advantage_that_is_not_exactly_0_breaks_the_silence(number):
    tool = GAE | {"advantages": [[0.25, number, 0.5], [0.5, 0.5, 0.0]]}
    assert broken(tool) == ["environment-credit"]
    assert findings(tool)["environment-credit"].said.startswith(
        "1 of 1 tokens that were not sampled; row 0, position 1"
    )
    padding = GAE | {"advantages": [[0.25, 0.0, 0.5], [0.5, 0.5, number]]}
    assert broken(padding) == ["padding-credit"]
    assert findings(padding)["padding-credit"].said.startswith("1 of 1 places of padding; row 1, position 2")


def test_without_padding_being_known_it_is_environment():
    columns = {"action_mask": [[1, 0]], "advantages": [[0.5, 0.5]]}
    assert broken(columns) == ["environment-credit"]
    assert findings(columns)["padding-credit"].missing == ("segments or valid_mask",)


# ratio and gradient


LOGPROBS = {
    "action_mask": [[1, 0, 1, 1], [1, 1, 0, 0]],
    "valid_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
    "logprobs": [[-1.0, -9.0, -2.0, -1.5], [-1.0, -1.0, -3.0, NAN]],
    "old_logprobs": [[-1.5, -6.0, -2.0, -2.5], [-1.0, -2.0, -1.0, NAN]],
}
CHANGE = torch.tensor([[0.5, -3.0, 0.0, 1.0], [0.0, 1.0, -2.0, 0.0]]).double()
ONES = torch.ones(2, 4).double()


def per_row(*numbers: float) -> torch.Tensor:
    return (torch.tensor(numbers).double().unsqueeze(1) * ONES).exp()


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        pytest.param(CHANGE.exp(), "the ratio is each token's own", id="token"),
        pytest.param(per_row(0.5, 0.5), "geometric mean", id="mean"),
        pytest.param(per_row(0.5, 0.5)[:, :1], "geometric mean", id="one-a-row"),
        pytest.param(per_row(1.5, 1.0), "the product", id="product"),
    ],
)
def test_a_ratio_over_sampled_tokens_is_recognised(ratio, words):
    found = findings(LOGPROBS | {"ratio": ratio})["ratio-differs"]
    assert found.verdict == "holds"
    assert words in found.said


@pytest.mark.parametrize(
    ("ratio", "words", "expected"),
    [
        pytest.param(per_row(-1.5 / 4, -1.0 / 3), "not sampled are in the mean", 0.5, id="mean-of-all"),
        pytest.param(per_row(1.5 / 4, 1.0 / 3), "divided by all tokens", 0.5, id="all-in-the-divisor"),
        pytest.param(per_row(-1.5, -1.0), "not sampled are in the product", 0.5, id="product-of-all"),
        pytest.param(per_row(2.0, 2.0), "", 0.5, id="unknown"),
        pytest.param((2 * CHANGE).exp(), "", 0.5, id="unknown-token"),
    ],
)
def test_another_ratio_is_named_where_it_is_known(ratio, words, expected):
    found = findings(LOGPROBS | {"ratio": ratio})["ratio-differs"]
    assert found.verdict == "broken"
    assert words == "" or words in found.pattern
    assert (found.pattern == "") == (words == "")
    assert where(found)[:2] == (0, 0)
    assert found.place.expected == pytest.approx(torch.tensor(expected).exp().item())


def test_mean_and_product_of_the_worked_example():
    columns = {"action_mask": [[1, 1, 0, 1]], "logprobs": [[0.02, -0.01, 0.5, 0.03]], "old_logprobs": [[0.0] * 4]}
    assert "geometric mean" in findings(columns | {"ratio": [1.013423]})["ratio-differs"].said
    assert "the product" in findings(columns | {"ratio": [1.040811]})["ratio-differs"].said


GRADIENT = {"action_mask": [[1, 0, 1, 1], [1, 1, 0, 0]], "advantages": [[1.0, 0, -1.0, 3.0], [2.0, 2.0, 0, 0]]}


@pytest.mark.parametrize(
    ("grad", "verdict"),
    [
        pytest.param([[-0.5, 0, -0.5, -0.5], [-1.0, -1.0, 0, 0]], "broken", id="one-number-an-answer"),
        pytest.param([[-0.5, 9.0, -0.5, -0.5], [-1.0, -1.0, NAN, INF]], "broken", id="whatever-is-masked"),
        pytest.param([[-0.5, 0, 0.5, -1.5], [-1.0, -1.0, 0, 0]], "holds", id="each-its-own"),
        pytest.param([[0.0, 0, 0.5, 0.0], [-1.0, -1.0, 0, 0]], "holds", id="some-clipped"),
        pytest.param([[0.0, 0, 0.0, 0.0], [-1.0, -1.0, 0, 0]], "not checkable", id="all-clipped"),
    ],
)
def test_the_gradient_must_differ_where_advantages_do(grad, verdict):
    assert findings(GRADIENT | {"policy_loss_grad": grad})["credit-collapsed"].verdict == verdict


def test_one_answer_with_a_gradient_of_its_own_clears_the_loss():
    columns = GRADIENT | {"advantages": [[1.0, 0, -1.0, 3.0], [2.0, 1.0, 0, 0]]}
    both = columns | {"policy_loss_grad": [[-0.5, 0, -0.5, -0.5], [-1.5, -1.5, 0, 0]]}
    assert where(findings(both)["credit-collapsed"]) == (0, 2, -0.5, 0.5)
    one = columns | {"policy_loss_grad": [[-0.5, 0, -0.5, -0.5], [-2.0, -1.0, 0, 0]]}
    assert findings(one)["credit-collapsed"].said == "the gradient differs from token to token in 1 answers"


def test_a_collapsed_gradient_whose_mean_is_0_still_has_a_place():
    columns = GRADIENT | {"advantages": [[1.0, 0, -2.0, 1.0], [0, 0, 0, 0]], "policy_loss_grad": [[1e-3] * 4, [0] * 4]}
    found = findings(columns)["credit-collapsed"]
    assert found.verdict == "broken"
    assert where(found)[:2] == (0, 0)


# reduction


LOSS = {
    "action_mask": [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]],
    "valid_mask": [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 0, 0]],
    "token_loss": [[2.0, 4.0, 12.0, 50.0], [1.0, 1.0, 1.0, 1.0], [3.0, 3.0, 0.5, 0.5]],
    "micro_batch": [0, 1, 1],
}


@pytest.mark.parametrize(
    ("named", "loss", "words"),
    [
        pytest.param("token_mean", 2.0, "micro-batches are averaged", id="micro-token-means"),
        pytest.param("sequence_sum", 5.0 / 1, "", id="sequence-sum"),
        pytest.param("token_mean", 10 / 9, "tokens that were not sampled are in the denominator", id="valid-count"),
        pytest.param("token_mean", 28 / 9, "tokens that were not sampled are in the loss", id="valid-sum"),
        pytest.param("sequence_mean", 4 / 3, "rows without a token count", id="empty-rows"),
        pytest.param("token_mean", 10 / 12, "every place is in the denominator", id="places"),
        pytest.param("token_mean", 79 / 12, "every place is in the loss", id="plain-mean"),
        pytest.param("token_mean", 7.0, None, id="unknown"),
    ],
)
def test_a_loss_that_is_another_is_named_where_it_is_known(named, loss, words):
    found = findings(LOSS | {"reduction": named, "loss": loss})["reduction-differs"]
    assert (found.verdict == "holds") == (words == "")
    assert (found.pattern == "") == (not words)
    assert not words or words in found.pattern


def test_means_of_micro_batches_of_several_rows():
    columns = {
        "action_mask": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
        "token_loss": [[1.0, 1.0, 1.0, 1.0], [4.0, 4.0, 0, 0], [9.0, 0, 0, 0]],
        "micro_batch": [7, 7, 3],
    }
    said = {
        "token_mean": (12 / 6 + 9) / 2,
        "sequence_mean": ((1 + 4) / 2 + 9) / 2,
        "sequence_sum": ((4 + 8) / 2 + 9) / 2,
    }
    for named, loss in said.items():
        found = findings(columns | {"reduction": named, "loss": loss})["reduction-differs"]
        assert found.verdict == "broken", named
        assert "micro-batches are averaged" in found.pattern
    unnamed = findings(columns | {"loss": said["token_mean"]})["reduction-differs"]
    assert "expected 3 (token_mean)" in unnamed.said
    honest = findings(columns | {"loss": 21 / 7})["reduction-differs"]
    assert (honest.verdict, honest.said) == ("holds", "the loss is token_mean")


def test_tokens_of_answers_without_a_score_do_not_count():
    columns = {
        "action_mask": [[1, 1], [1, 1]],
        "rewards": [[0, NAN], [0, 1.0]],
        "token_loss": [[8.0, 8.0], [2.0, 4.0]],
        "reduction": "token_mean",
    }
    assert findings(columns | {"loss": 3.0})["reduction-differs"].verdict == "holds"
    denominator = findings(columns | {"loss": 1.5})["reduction-differs"]
    assert "of rollouts without a score are in the denominator" in denominator.pattern
    counted = findings(columns | {"loss": 5.5})["reduction-differs"]
    assert "of rollouts without a score are in the loss" in counted.pattern


def test_another_reduction_than_the_one_named_is_said_to_be_that():
    found = findings(LOSS | {"micro_batch": None, "reduction": "token_mean", "loss": 5.0})["reduction-differs"]
    assert found.said == "loss is 5, expected 1.66667 (token_mean); it is sequence_sum"


def test_a_fixed_divisor_must_be_given():
    columns = LOSS | {"reduction": "fixed_divisor", "loss": 1.25}
    assert findings(columns)["reduction-differs"].missing == ("divisor",)
    assert findings(columns | {"divisor": 8})["reduction-differs"].verdict == "holds"
    assert findings(columns | {"divisor": 4})["reduction-differs"].verdict == "broken"


def test_a_loss_that_is_no_number_is_broken():
    assert "loss is nan" in findings(LOSS | {"loss": NAN})["reduction-differs"].said


# nothing to check


def test_a_batch_without_a_sampled_token_is_silent_and_nothing_else_is_checkable():
    columns = answers(action_mask=[[0, 0, 0]] * 4, advantages=[[0, 0, 0]] * 4, loss=0.0, token_loss=[[0.0] * 3] * 4)
    columns |= {"logprobs": [[0.0] * 3] * 4, "old_logprobs": [[0.0] * 3] * 4, "ratio": [1.0] * 4}
    columns |= {"policy_loss_grad": [[0.0] * 3] * 4}
    found = findings(columns)
    assert broken(columns) == []
    for code in ("group-statistics", "uneven-answer", "ratio-differs", "credit-collapsed", "reduction-differs"):
        assert found[code].said == "no rollout that was scored has a sampled token", code
    assert findings(columns | {"recipe": "gae"})["gap-leak"].verdict == "not checkable"
    assert found["environment-credit"].verdict == "holds"


def test_more_tolerance_is_allowed_where_it_is_asked_for():
    rounded = GAE | {"advantages": [[0.2501, 0.0, 0.5], [0.5, 0.5, 0.0]]}
    assert broken(rounded) == ["credit-differs"]
    assert broken(rounded | {"tolerance": 2e-4}) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_column_is_as_exact_as_its_type(dtype):
    values = torch.tensor([[0.3, 0.0, 0.7], [0.1, 0.9, 0.0]], dtype=torch.float64)
    credit = torch.tensor([[0.55, 0.0, 0.3], [0.85, 0.1, 0.0]], dtype=torch.float64)
    columns = GAE | {"values": values.to(dtype), "advantages": credit.to(dtype)}
    assert broken(columns) == []
    off = torch.tensor([[0.0, 0, 0.5], [0, 0, 0]]) * (1 if torch.finfo(dtype).eps > 1e-4 else 1e-3)
    assert broken(columns | {"advantages": (credit + off).to(dtype)}) == ["credit-differs"]
