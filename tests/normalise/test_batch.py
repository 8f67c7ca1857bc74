"""One scale for the whole batch: by size, by a number, or block by block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import normalise
from apportion.errors import InputError
from batches import INF, NAN

Grids = tuple[Tensor, Tensor]
ONE = torch.tensor([0, 0])


@st.composite
def grids(draw: st.DrawFn) -> Grids:
    """Credit [N, K] in float64 with exact sums, and a mask."""
    rows, steps = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    numbers = draw(st.lists(st.integers(-64, 64), min_size=rows * steps, max_size=rows * steps))
    marks = draw(st.lists(st.sampled_from([True, True, False]), min_size=rows * steps, max_size=rows * steps))
    return torch.tensor(numbers, dtype=torch.float64).view(rows, steps) / 16, torch.tensor(marks).view(rows, steps)


def ungrouped(credit: Tensor) -> Tensor:
    return torch.zeros(len(credit), dtype=torch.int64)


def test_dividing_by_the_mean_size_by_hand() -> None:
    # sizes 1, 3, 2: mean 2
    credit = torch.tensor([[1.0, NAN], [-3.0, 2.0]])

    found = normalise.mean_abs(credit, torch.tensor([[True, False], [True, True]]), ONE)

    assert found.tolist() == [[0.5, 0], [-1.5, 1]]


@given(grids())
def test_dividing_by_the_mean_size_keeps_signs_and_makes_that_size_one(grid: Grids) -> None:
    credit, mask = grid
    found = normalise.mean_abs(credit, mask, ungrouped(credit))

    assert torch.equal(found[mask].sign(), credit[mask].sign())
    if bool(credit[mask].ne(0).any()):
        assert abs(float(found[mask].abs().mean()) - 1) < 1e-12
        torch.testing.assert_close(normalise.mean_abs(-4 * credit, mask, ungrouped(credit)), -found)
    assert found[~mask].eq(0).all()


def test_dividing_by_a_number_by_hand() -> None:
    found = normalise.constant(4.0)(torch.tensor([[3.0, INF], [-1.0, NAN]]), torch.tensor([[True, False]] * 2), ONE)

    assert found.tolist() == [[0.75, 0], [-0.25, 0]]


@given(grids())
def test_dividing_by_one_changes_nothing(grid: Grids) -> None:
    credit, mask = grid
    groups = ungrouped(credit)

    assert torch.equal(normalise.constant(1.0)(credit, mask, groups), normalise.none(credit, mask, groups))


@pytest.mark.parametrize("divisor", [pytest.param(d, id=str(d)) for d in (0.0, -1.0, INF, NAN)])
def test_a_divisor_that_is_no_positive_number_is_refused(divisor: float) -> None:
    with pytest.raises(InputError, match=f"positive number only, got {divisor}"):
        normalise.constant(divisor)


def test_blocks_of_steps_are_whitened_each_by_itself() -> None:
    # steps 0 and 1: 1, 3 | 5, 7, mean 4; step 2: 100 | 104, and a rollout that is too short to be in it
    credit = torch.tensor([[1.0, 3, 100], [5, 7, 104], [NAN, INF, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True] * 3, [False] * 3])

    found = normalise.block_whiten(2)(credit, mask, torch.tensor([0, 1, 2]))

    first, last = (20 / 3) ** 0.5, 8**0.5
    expected = [[-3 / first, -1 / first, -2 / last], [1 / first, 3 / first, 2 / last], [0, 0, 0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)


@given(grids(), st.integers(1, 6))
def test_every_block_comes_out_as_whitening_makes_it_alone(grid: Grids, size: int) -> None:
    credit, mask = grid
    groups = ungrouped(credit)

    found = normalise.block_whiten(size)(credit, mask, groups)

    alone = [
        normalise.whiten(credit[:, k : k + size], mask[:, k : k + size], groups)
        for k in range(0, credit.shape[1], size)
    ]
    torch.testing.assert_close(found, torch.cat(alone, dim=1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [pytest.param(0, id="none"), pytest.param(-3, id="negative")])
def test_a_block_of_no_steps_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 step, got {size}"):
        normalise.block_whiten(size)
