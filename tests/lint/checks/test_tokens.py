"""Credit of tokens: where it holds, where it breaks, and what it needs."""

from __future__ import annotations

import pytest
import torch

from apportion.lint import lint
from apportion.lint.explanation import TokenCredit
from apportion.lint.intake import batch_of
from lint.findings import GAE, answers, broken, exact, findings, where


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


# gamma is paid in a gap: 2 and 4 too little before it, and then everything is divided by 4.
LEAKY = {
    "action_mask": [[1, 1, 0, 1, 1, 1]],
    "rewards": [[200.0, 100.0, 0.0, 0.0, 0.0, 64.0]],
    "advantages": [[63.0, 26.0, 0.0, 4.0, 8.0, 16.0]],
    "gamma": 0.5,
    "recipe": "to_go",
}


def test_the_first_offending_place_is_the_first_past_the_tolerance_as_it_was_scaled():
    found = exact(LEAKY, 2.0)["gap-leak"]
    assert found.verdict == "broken"
    assert (found.place.position, found.place.came, found.place.expected) == (1, 26.0, 27.0)
    assert exact(LEAKY, 1.75)["gap-leak"].place.position == 0


def test_what_is_off_by_little_has_a_place_too():
    columns = {"action_mask": [[1, 1, 1]], "rewards": [[0.0, 0.0, 1.0]], "gamma": 1.0, "recipe": "to_go"}
    credit = TokenCredit(batch_of(columns | {"advantages": [[1.0, 1.0, 1.0]]}))
    nearly = 1.0 + 1.25 * credit.batch.allowed("rewards", scale=1.0, terms=3)
    found = {each.code: each for each in lint(columns | {"advantages": [[1.0, nearly, 1.0]]})}
    assert found["credit-differs"].verdict == "broken"
    assert (found["credit-differs"].place.row, found["credit-differs"].place.position) == (0, 1)
