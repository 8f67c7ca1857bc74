"""The entropy bonus, and the tokens of the highest entropy."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion import losses
from apportion.errors import InputError
from apportion.logprobs import selected_logprobs
from batches import INF, NAN
from grids import grid, marks

PROBABILITIES = torch.tensor([[1, 1, 1, 1], [4, 0, 0, 0], [2, 2, 0, 0], [2.8, 0.4, 0.4, 0.4]]) / 4
ONE_ROW = torch.zeros(1, 4, dtype=torch.int64)


def test_more_entropy_is_less_loss() -> None:
    assert losses.entropy_bonus(grid(0.5, 2), torch.tensor([[True, False]])).tolist() == [[-0.5, 0]]


@pytest.mark.parametrize(
    ("counts", "loss"),
    [
        pytest.param((1, 1, 1, 0), 0.293069, id="of the tokens that are trained"),
        pytest.param((1, 0, 1, 0), 0.289603, id="of those that a quantile kept"),
    ],
)
def test_the_entropy_bonus_lowers_the_loss_by_the_mean_over_the_mask_that_is_given(
    counts: tuple[int, ...], loss: float
) -> None:
    _, entropy = selected_logprobs(PROBABILITIES.log(), torch.zeros(4, dtype=torch.int64))
    mask = marks(*counts)

    bonus = losses.total(losses.entropy_bonus(entropy.unsqueeze(0), mask), losses.token_mean(mask, ONE_ROW))

    assert 0.3 + 0.01 * bonus.item() == pytest.approx(loss, abs=1e-6)


def test_the_top_entropies_of_two_rows_with_padding() -> None:
    entropy = torch.tensor([[0.1, 0.9, 0.5, 0, 0], [0.7, 0.3, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()

    assert losses.top_entropy_mask(entropy, mask, 0.4).int().tolist() == [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("keep", "lowest"),
    [
        # of 1 .. 5, the quantile is 1 + (1 - keep) * 4
        pytest.param(1.0, 1, id="all"),
        pytest.param(0.75, 2, id="on an entry"),
        pytest.param(0.7, 3, id="between two"),
        pytest.param(0.5, 3, id="the median"),
        pytest.param(0.01, 5, id="the highest alone"),
    ],
)
def test_kept_is_what_is_not_below_the_quantile(keep: float, lowest: int) -> None:
    entropy = grid(3, 1, NAN, 5, 2, 4, INF)
    mask = marks(1, 1, 0, 1, 1, 1, 0)

    kept = losses.top_entropy_mask(entropy, mask, keep)

    assert kept.tolist() == (mask & (entropy >= lowest)).tolist()


@given(
    tokens=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=12),
    keep=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    filler=st.sampled_from([0.0, NAN, INF, -INF, 1e9]),
)
def test_the_mask_of_top_entropies_is_that_of_a_linear_quantile_over_the_tokens_that_count(
    tokens: list[tuple[int, bool]], keep: float, filler: float
) -> None:
    mask = torch.tensor([[counts for _, counts in tokens]])
    entropy = torch.where(mask, grid(*(number for number, _ in tokens)), filler)

    kept = losses.top_entropy_mask(entropy, mask, keep)

    assert not (kept & ~mask).any()
    if mask.any():
        threshold = entropy[mask].quantile(1 - keep)
        assert torch.equal(kept[mask], entropy[mask] >= threshold)
        assert kept.sum() >= math.ceil(keep * (int(mask.sum()) - 1))
        assert kept.any()


def test_where_nothing_counts_nothing_is_kept() -> None:
    assert losses.top_entropy_mask(grid(1, NAN), marks(0, 0), 0.5).tolist() == [[False, False]]


@pytest.mark.parametrize("keep", [pytest.param(keep, id=str(keep)) for keep in (0.0, -0.5, 1.5, NAN)])
def test_a_share_to_keep_that_is_none_is_refused(keep: float) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        losses.top_entropy_mask(grid(1, 2), marks(1, 1), keep)
