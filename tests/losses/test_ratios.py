"""Ratios of tokens and of whole answers, and the report of how trainer and sampler disagree."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import losses
from apportion.rollouts import Rollout, collate
from batches import FEWER, INF, NAN, random_rows, recut
from grids import ON, gradient, grid, marks

WHOLE = torch.zeros(1, 4, dtype=torch.int64)


def test_the_ratio_is_one_where_it_does_not_count() -> None:
    found = losses.probability_ratio(grid(math.log(2) - 1, NAN, 0), grid(-1, -1, -INF), marks(1, 0, 0))

    assert found[0].tolist() == pytest.approx([2, 1, 1], abs=1e-12)


def test_the_mean_ratio_and_the_product_of_three_tokens_around_a_tool_token() -> None:
    new, old, mask = grid(0.02, -0.01, 0.5, 0.03) - 1, grid(-1, -1, -1, -1), marks(1, 1, 0, 1)

    mean, product = (
        ratio(new, old, mask, WHOLE)[0].tolist() for ratio in (losses.sequence_ratio, losses.product_ratio)
    )

    assert mean == pytest.approx([1.013423, 1.013423, 1, 1.013423], abs=1e-6)
    assert product == pytest.approx([1.040811, 1.040811, 1, 1.040811], abs=1e-6)
    assert mean[2] == product[2] == 1


def test_over_a_hundred_tokens_the_mean_ratio_stays_and_the_product_grows() -> None:
    new, old = torch.full((1, 100), -0.99, dtype=torch.float64), torch.full((1, 100), -1.0, dtype=torch.float64)
    mask, whole = torch.ones(1, 100, dtype=torch.bool), torch.zeros(1, 100, dtype=torch.int64)

    assert losses.sequence_ratio(new, old, mask, whole)[0, 7].item() == pytest.approx(1.01005, abs=1e-6)
    assert losses.product_ratio(new, old, mask, whole)[0, 7].item() == pytest.approx(math.e, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "slope"),
    [pytest.param(losses.sequence_ratio, 0.5, id="mean"), pytest.param(losses.product_ratio, 1, id="product")],
)
def test_every_token_moves_the_ratio_of_its_answer_alike(ratio, slope: float) -> None:
    def of_the_first(new: Tensor) -> Tensor:
        return ratio(new, grid(-1, -2, -3), marks(1, 1, 0), torch.zeros(1, 3, dtype=torch.int64))[:, :1]

    assert gradient(of_the_first, grid(-1, -2, NAN)) == [slope, slope, 0]


@FEWER
@given(rows=random_rows(), width=st.integers(1, 7))
def test_the_ratio_of_an_answer_is_the_same_in_any_layout_and_that_of_its_own_tokens(
    rows: list[Rollout], width: int
) -> None:
    batch = collate(rows)
    new = torch.where(
        batch.action_mask, (torch.arange(batch.tokens.numel()).view(batch.tokens.shape) % 7 - 3) / 16, NAN
    )
    old = torch.where(batch.action_mask, 0.0, INF)
    cut = recut(batch, width)

    def laid_out(entries: Tensor) -> Tensor:
        grid = torch.full(cut.tokens.shape, NAN, dtype=entries.dtype)
        grid[cut.valid_mask] = entries[batch.valid_mask]
        return grid

    for ratio, total in ((losses.sequence_ratio, torch.mean), (losses.product_ratio, torch.sum)):
        found = ratio(new.double(), old.double(), batch.action_mask, batch.rollout_of)
        again = ratio(laid_out(new.double()), laid_out(old.double()), cut.action_mask, cut.rollout_of)
        torch.testing.assert_close(again[cut.valid_mask], found[batch.valid_mask], rtol=1e-12, atol=0)
        assert found[~batch.action_mask].eq(1).all()
        for n in range(len(batch)):
            own = (batch.rollout_of == n) & batch.action_mask
            torch.testing.assert_close(
                found[own], total(new[own].double()).exp().expand(int(own.sum())), rtol=1e-12, atol=0
            )


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_where_every_token_is_an_answer_both_are_the_ratio_of_tokens(gaps: list[float]) -> None:
    new, old = grid(*gaps), torch.zeros_like(grid(*gaps))
    mask, each = torch.ones_like(new).bool(), torch.arange(len(gaps)).unsqueeze(0)

    for ratio in (losses.sequence_ratio, losses.product_ratio):
        torch.testing.assert_close(
            ratio(new, old, mask, each), losses.probability_ratio(new, old, mask), rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("gap", [pytest.param(gap, id=str(gap)) for gap in (200.0, -200.0, INF, -INF)])
def test_the_ratio_of_an_answer_is_kept_within_twenty_nats(gap: float) -> None:
    bound = math.exp(math.copysign(20, gap))

    for ratio in (losses.sequence_ratio, losses.product_ratio):
        found = ratio(grid(gap, gap), grid(0, 0), ON, torch.zeros(1, 2, dtype=torch.int64))
        assert found[0].tolist() == pytest.approx([bound, bound], rel=1e-12)


def test_an_answer_that_does_not_count_moves_no_other_and_has_ratio_one() -> None:
    new, old = grid(-1, NAN, -INF, NAN), grid(-1.5, 0, 0, INF)

    for ratio in (losses.sequence_ratio, losses.product_ratio):
        found = ratio(new, old, marks(1, 0, 0, 0), torch.tensor([[1, 1, 0, -1]]))
        assert found[0].tolist() == pytest.approx([math.exp(0.5), 1, 1, 1], rel=1e-12)


# --- mismatch


def test_a_mismatch_whose_mean_is_nought_is_seen_in_its_size_over_the_tokens_that_count() -> None:
    found = losses.mismatch(grid(0.15, -0.15, 0, 0, 9), grid(0, 0, 0, 0, 0), marks(1, 1, 1, 1, 0), band=(0.9, 1.1))

    assert found.tokens == 4
    assert found.mean == pytest.approx(0, abs=1e-12)
    assert found.mean_abs == pytest.approx(0.075, rel=1e-12)
    assert found.max_abs == pytest.approx(0.15, rel=1e-12)
    assert found.share_outside == 0.5


def test_the_mismatch_is_the_trainers_less_the_samplers() -> None:
    found = losses.mismatch(grid(-1, -1), grid(-1.5, -1), ON)

    assert (found.mean, found.total, found.total_abs, found.max_abs) == (0.25, 0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("ratio", "outside"),
    [
        pytest.param(1.0, 0, id="alike"),
        pytest.param(0.5, 0, id="at the lower end"),
        pytest.param(2.0, 0, id="at the upper end"),
        pytest.param(0.49, 1, id="below"),
        pytest.param(2.01, 1, id="above"),
        pytest.param(NAN, 1, id="no number"),
    ],
)
def test_a_ratio_is_outside_the_band_beyond_its_ends(ratio: float, outside: int) -> None:
    gap = torch.tensor([[ratio]], dtype=torch.float64).log()

    assert losses.mismatch(gap, torch.zeros_like(gap), marks(1), band=(0.5, 2.0)).outside == outside


@pytest.mark.parametrize(
    ("ratio", "outside"), [pytest.param(r, n, id=str(r)) for r, n in ((0.89, 1), (0.91, 0), (1.09, 0), (1.11, 1))]
)
def test_the_band_is_a_tenth_to_either_side_unless_told_otherwise(ratio: float, outside: int) -> None:
    assert losses.mismatch(grid(math.log(ratio)), grid(0), marks(1)).outside == outside


def test_over_no_token_there_is_no_mismatch_and_not_one_of_nought() -> None:
    found = losses.mismatch(grid(NAN, 1), grid(0, INF), marks(0, 0))

    assert found == losses.Mismatch()
    assert found.tokens == 0
    assert found.outside == 0
    assert (found.mean, found.mean_abs, found.max_abs, found.share_outside) == (None, None, None, None)


@given(st.lists(st.tuples(st.integers(-32, 32), st.booleans(), st.integers(0, 2)), min_size=1, max_size=12))
def test_the_mismatch_of_micro_batches_adds_up_to_that_of_the_batch(tokens: list[tuple[int, bool, int]]) -> None:
    gaps = torch.tensor([[gap / 16 for gap, _, _ in tokens]])
    counts = torch.tensor([[flag for _, flag, _ in tokens]])
    part = torch.tensor([[place for _, _, place in tokens]])
    zeros = torch.zeros_like(gaps)

    parts = [losses.mismatch(gaps[:, own], zeros[:, own], counts[:, own]) for own in (part[0] == n for n in range(3))]

    assert sum(parts, losses.Mismatch()) == losses.mismatch(gaps, zeros, counts)


def test_a_report_of_mismatch_holds_on_to_no_graph_and_needs_none() -> None:
    leaf = grid(-1, -2).requires_grad_()

    assert isinstance(losses.mismatch(leaf, leaf.detach(), ON).mean, float)
