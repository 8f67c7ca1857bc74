"""Which weight each token has in the loss."""

from __future__ import annotations

import pytest

from lint.findings import EDGE, NAN, exact, findings

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


@EDGE
def test_a_loss_may_be_off_by_the_tolerance(off, verdict):
    columns = {"action_mask": [[1, 1]], "token_loss": [[1.0, 3.0]], "reduction": "token_mean", "loss": 2.0 + off}
    assert exact(columns, 0.25)["reduction-differs"].verdict == verdict
