"""Ratios and gradients."""

from __future__ import annotations

import pytest
import torch

from lint.findings import EDGE, INF, NAN, exact, findings, where

LOGPROBS = {
    "action_mask": [[1, 0, 1, 1], [1, 1, 0, 0]],
    "valid_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
    "logprobs": [[-1.25, -9.0, -1.75, -1.5], [-1.0, -1.0, -3.0, NAN]],
    "old_logprobs": [[-1.5, -6.0, -2.0, -2.5], [-1.0, -2.0, -1.0, NAN]],
}


CHANGE = torch.tensor([[0.25, -3.0, 0.25, 1.0], [0.0, 1.0, -2.0, 0.0]]).double()


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
        pytest.param((2 * CHANGE).exp(), "", 0.25, id="unknown-token"),
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


def test_the_place_of_a_collapsed_gradient_is_a_sampled_token_that_differs_from_the_mean():
    columns = {"action_mask": [[1, 1, 0, 0], [0, 1, 1, 1]], "advantages": [[2.0, 2.0, 0, 0], [0, 1.0, 0.5, 1.5]]}
    found = findings(columns | {"policy_loss_grad": [[-1.0, -1.0, 0, 0], [0, -0.5, -0.5, -0.5]]})["credit-collapsed"]
    assert where(found) == (1, 2, -0.5, -0.25)


@EDGE
def test_a_ratio_may_be_off_by_the_tolerance_of_the_log_probabilities_and_its_own(off, verdict):
    columns = {"action_mask": [[1, 1]], "logprobs": [[-2.0, -1.0]], "old_logprobs": [[-2.0, -1.0]]}
    assert exact(columns | {"ratio": [[1.0 + off, 1.0]]}, 0.125)["ratio-differs"].verdict == verdict


def test_the_tolerance_of_a_ratio_is_relative():
    columns = {"action_mask": [[1, 1]], "logprobs": [[-1.0, -1.0]], "old_logprobs": [[-2.0, -1.0]]}
    e = torch.tensor(1.0).double().exp().item()
    assert exact(columns | {"ratio": [[e + 0.375, 1.0]]}, 0.125)["ratio-differs"].verdict == "holds"  # of 0.46
    assert exact(columns | {"ratio": [[e + 0.5, 1.0]]}, 0.125)["ratio-differs"].verdict == "broken"


@pytest.mark.parametrize(
    ("advantages", "grad", "verdict"),
    [
        pytest.param([0.0, 0.25], [1.0, 1.0], "not checkable", id="advantages-at-the-edge"),
        pytest.param([0.0, 0.375], [1.0, 1.0], "broken", id="advantages-past-it"),
        pytest.param([0.0, 1.0], [1.0, 1.25], "broken", id="gradient-at-the-edge"),
        pytest.param([0.0, 1.0], [1.0, 1.375], "holds", id="gradient-past-it"),
    ],
)
def test_credit_differs_from_token_to_token_where_it_differs_by_more_than_the_tolerance(advantages, grad, verdict):
    columns = {"action_mask": [[1, 1]], "advantages": [advantages], "policy_loss_grad": [grad]}
    assert exact(columns, 0.25)["credit-collapsed"].verdict == verdict
