"""Figures of credit, each on a case worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from apportion.audit import metrics
from apportion.audit.subject import NONE

ONCE = torch.ones(1, 2)
MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])
CREDIT = torch.tensor([[0.0, -1.0, -0.5, -0.5], [1.0, -1.0, 7.0, 7.0]])  # past an answer's last step: anything
TRUTH = torch.tensor([[0.0, -1.0, 0.0, 0.25], [0.5, 0.0, 3.0, 3.0]])


def test_correlation_is_over_the_steps_that_are_there() -> None:
    x, y = CREDIT[MASK].tolist(), TRUTH[MASK].tolist()
    mean_x, mean_y = sum(x) / 6, sum(y) / 6
    xy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    expected = xy / math.sqrt(sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y))
    assert float(metrics.pearson(CREDIT, TRUTH, MASK, ONCE)) == pytest.approx(expected, abs=1e-12)


def test_an_answer_that_counts_twice_counts_as_two() -> None:
    twice = metrics.pearson(CREDIT, TRUTH, MASK, torch.tensor([[2.0, 1.0]]))
    rows = [0, 0, 1]
    assert float(twice) == pytest.approx(
        float(metrics.pearson(CREDIT[rows], TRUTH[rows], MASK[rows], torch.ones(1, 3)))
    )
    ranks = metrics.spearman(CREDIT, TRUTH, MASK, torch.tensor([[2.0, 1.0]]))
    assert float(ranks) == pytest.approx(
        float(metrics.spearman(CREDIT[rows], TRUTH[rows], MASK[rows], torch.ones(1, 3)))
    )


def test_correlation_of_ranks_by_hand() -> None:
    # credit 0, -1, -.5, -.5, 1, -1 ranks 5, 1.5, 3.5, 3.5, 6, 1.5; truth 0, -1, 0, .25, .5, 0 ranks 3, 1, 3, 5, 6, 3
    rank_x = torch.tensor([[5.0, 1.5, 3.5, 3.5], [6.0, 1.5, 0, 0]])
    rank_y = torch.tensor([[3.0, 1.0, 3.0, 5.0], [6.0, 3.0, 0, 0]])
    expected = float(metrics.pearson(rank_x, rank_y, MASK, ONCE))
    assert float(metrics.spearman(CREDIT, TRUTH, MASK, ONCE)) == pytest.approx(expected, abs=1e-12)


def test_any_increasing_function_keeps_the_ranks() -> None:
    assert float(metrics.spearman(CREDIT, CREDIT.exp(), MASK, ONCE)) == pytest.approx(1)
    assert float(metrics.spearman(CREDIT, -CREDIT.exp(), MASK, ONCE)) == pytest.approx(-1)
    assert float(metrics.pearson(CREDIT, CREDIT.exp(), MASK, ONCE)) < 0.99


def test_ranks_in_parts_are_the_ranks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = metrics.resamples(2, 9, 0)
    whole = metrics.spearman(CREDIT, TRUTH, MASK, weights)
    monkeypatch.setattr(metrics, "AT_ONCE", 12)
    torch.testing.assert_close(metrics.spearman(CREDIT, TRUTH, MASK, weights), whole, equal_nan=True)


@pytest.mark.parametrize("figure", [metrics.pearson, metrics.spearman])
def test_credit_that_is_the_same_everywhere_says_nothing(figure) -> None:
    assert float(figure(torch.full((2, 4), -0.3), TRUTH, MASK, ONCE)) != float(
        figure(torch.full((2, 4), -0.3), TRUTH, MASK, ONCE)
    )


HITS = [
    pytest.param([-1.0, -0.5, 0.0], 0, [1, 1], id="most-blamed"),
    pytest.param([-1.0, -2.0, -3.0], 0, [0, 1], id="least-blamed"),
    pytest.param([-1.0, -1.0, -1.0], 1, [1 / 3, 1], id="all-alike-is-chance"),
    pytest.param([0.0, 0.0, 0.0], 1, [0, 0], id="nobody-blamed"),
    pytest.param([-1.0, 0.5, 0.0], 1, [0, 0], id="praised"),
    pytest.param([-1.0, -1.0, 0.0], NONE, [0, 0], id="no-key-step"),
]


@pytest.mark.parametrize(("credit", "key", "expected"), HITS)
def test_the_key_step_is_hit_where_it_is_among_the_most_blamed(credit, key, expected) -> None:
    mask = torch.tensor([[True] * 3])
    found = [metrics.hits(torch.tensor([credit]), torch.tensor([key]), mask, at).item() for at in (1, 3)]
    assert found == pytest.approx(expected)


def test_what_stands_past_the_last_step_is_not_blamed() -> None:
    credit, mask = torch.tensor([[-1.0, -0.5, -9.0]]), torch.tensor([[True, True, False]])
    assert metrics.hits(credit, torch.tensor([0]), mask, 1).item() == 1
    assert metrics.by_chance(torch.tensor([0]), mask, 1).item() == 0.5
    assert metrics.by_chance(torch.tensor([NONE]), mask, 1).item() == 0


def test_random_blame_hits_by_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    credit, mask = -torch.rand(4000, 5, generator=generator), torch.ones(4000, 5, dtype=torch.bool)
    key = torch.randint(5, (4000,), generator=generator)
    for at, expected in ((1, 0.2), (3, 0.6)):
        assert float(metrics.hits(credit, key, mask, at).mean()) == pytest.approx(expected, abs=0.025)
        assert float(metrics.by_chance(key, mask, at).mean()) == pytest.approx(expected)


def test_the_share_on_the_key_step_is_of_squares_and_of_lost_answers_alone() -> None:
    key = torch.tensor([1, NONE])
    part, whole = metrics.on_key(CREDIT, key, MASK)
    assert (part.tolist(), whole.tolist()) == ([1.0, 0.0], [1.5, 0.0])
    assert float(metrics.ratio(part, whole, ONCE)) == pytest.approx(2 / 3)


def test_the_share_on_idle_steps_is_of_sizes_and_of_all_answers() -> None:
    part, whole = metrics.on_idle(CREDIT, TRUTH, MASK)
    assert (part.tolist(), whole.tolist()) == ([0.5, 1.0], [2.0, 2.0])
    assert float(metrics.ratio(part, whole, torch.tensor([[3.0, 1.0]]))) == pytest.approx(2.5 / 8)


def test_a_step_is_idle_up_to_the_limit_and_on_either_side() -> None:
    truth = torch.tensor([[metrics.IDLE, -metrics.IDLE, 0.051, -0.051]], dtype=torch.float64)
    part, whole = metrics.on_idle(torch.ones(1, 4), truth, torch.ones(1, 4, dtype=torch.bool))
    assert (float(part), float(whole)) == (2, 4)


def test_bootstrap_samples_draw_as_many_answers_as_there_are_and_are_the_same_for_a_seed() -> None:
    weights = metrics.resamples(7, 50, 3)
    assert weights.sum(1).tolist() == [7] * 50
    assert torch.equal(weights, metrics.resamples(7, 50, 3))
    assert not torch.equal(weights, metrics.resamples(7, 50, 4))


def test_the_interval_of_a_share_is_as_wide_as_that_of_a_binomial() -> None:
    hit = torch.tensor([1.0] * 60 + [0.0] * 40)
    low, high = metrics.interval(metrics.ratio(hit, torch.ones(100), metrics.resamples(100, 4000, 0)))
    assert (low, high) == pytest.approx((0.6 - 1.96 * 0.049, 0.6 + 1.96 * 0.049), abs=0.015)


def test_an_interval_leaves_out_what_says_nothing() -> None:
    nan = float("nan")
    assert metrics.interval(torch.tensor([nan, 0.5, 0.5])) == (0.5, 0.5)
    assert all(math.isnan(end) for end in metrics.interval(torch.tensor([nan])))
