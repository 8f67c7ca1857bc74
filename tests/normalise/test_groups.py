"""Each answer, or step, against the others; and what every normalisation keeps."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import InputError, normalise
from batches import FEWER, INF, NAN

Grids = tuple[Tensor, Tensor, Tensor]
EVERY = [pytest.param(function, id=name) for name, function in normalise.BY_NAME.items()]
KEEP_EQUAL = ("none", "mean_abs", "group_increment_std")  # these do not centre, or look at what a step added
ON = [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")]


@st.composite
def grids(draw: st.DrawFn) -> Grids:
    """Credit [N, K] in float64 with exact sums, a mask, and groups that may skip numbers."""
    rows, steps = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    numbers = draw(st.lists(st.integers(-64, 64), min_size=rows * steps, max_size=rows * steps))
    marks = draw(st.lists(st.sampled_from([True, True, False]), min_size=rows * steps, max_size=rows * steps))
    groups = draw(st.lists(st.sampled_from([0, 2, 3]), min_size=rows, max_size=rows))
    credit = torch.tensor(numbers, dtype=torch.float64).view(rows, steps) / 16
    return credit, torch.tensor(marks).view(rows, steps), torch.tensor(groups)


def entries_of(group: int, grid: Tensor, mask: Tensor, groups: Tensor) -> Tensor:
    return grid[groups == group][mask[groups == group]]


CREDIT = torch.tensor([[1.0, NAN], [5.0, 5.0], [3.0, INF], [7.0, 9e9], [NAN, 2.0]])
MASK = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 0], [0, 1]]).bool()
GROUPS = torch.tensor([0, 1, 0, 2, 0])  # 1, 3, 2; 5, 5; 7


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(normalise.none, [[1, 0], [5, 5], [3, 0], [7, 0], [0, 2]], id="none"),
        pytest.param(normalise.group_std, [[1, 0], [0, 0], [3, 0], [0, 0], [0, 2]], id="group std"),
        pytest.param(
            partial(normalise.group_std_plus, eps=1.0),
            [[0.5, 0], [0, 0], [1.5, 0], [0, 0], [0, 1]],
            id="group std plus 1",
        ),
        pytest.param(normalise.group_mean_std, [[-1, 0], [0, 0], [1, 0], [0, 0], [0, 0]], id="group mean and std"),
        pytest.param(normalise.leave_one_out, [[-1.5, 0], [0, 0], [1.5, 0], [0, 0], [0, 0]], id="leave one out"),
    ],
)
def test_groups_of_three_two_and_one_by_hand(function: normalise.Normalise, expected: list[list[float]]) -> None:
    assert function(CREDIT, MASK, GROUPS).tolist() == expected


def test_whitening_by_hand() -> None:
    # mean 3, squares 4 + 4 + 0 + 0 over count - 1 = 2
    credit = torch.tensor([[1.0, NAN], [5.0, 3.0]])

    white = normalise.whiten(credit, torch.tensor([[True, False], [True, True]]), torch.tensor([0, 1]))

    assert white.tolist() == [[-1, 0], [1, 0]]


def test_spread_is_that_of_the_sample_as_torch_has_it() -> None:
    credit = torch.tensor([[0.0, 1.0, 0.25, -3.0]], dtype=torch.float64)
    mask, groups = torch.ones(1, 4).bool(), torch.tensor([0])

    torch.testing.assert_close(normalise.group_std(credit, mask, groups), credit / credit.std())
    expected = (credit - credit.mean()) / credit.std()
    torch.testing.assert_close(normalise.group_mean_std(credit, mask, groups), expected)


@pytest.mark.parametrize("function", EVERY)
@FEWER
@given(grid=grids())
def test_what_does_not_count_comes_out_zero_and_has_no_influence(function: normalise.Normalise, grid: Grids) -> None:
    credit, mask, groups = grid
    found = function(credit, mask, groups)

    assert found[~mask].eq(0).all()
    for garbage in (NAN, INF, 1e9):
        assert torch.equal(function(torch.where(mask, credit, garbage), mask, groups), found)


@pytest.mark.parametrize("function", EVERY)
@FEWER
@given(grid=grids())
def test_groups_by_any_other_number_are_the_same_groups(function: normalise.Normalise, grid: Grids) -> None:
    credit, mask, groups = grid

    assert torch.equal(function(credit, mask, 7 - 2 * groups), function(credit, mask, groups))


@pytest.mark.parametrize("function", EVERY)
@FEWER
@given(grid=grids(), data=st.data())
def test_rows_in_another_order_come_out_in_that_order(
    function: normalise.Normalise, grid: Grids, data: st.DataObject
) -> None:
    credit, mask, groups = grid
    turned = torch.tensor(data.draw(st.permutations(range(len(groups)))))

    found = function(credit[turned], mask[turned], groups[turned])

    torch.testing.assert_close(found, function(credit, mask, groups)[turned], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ON)
@pytest.mark.parametrize("size", [pytest.param(size, id=str(size)) for size in (1, 2, 3, 7, 64)])
@pytest.mark.parametrize("entry", [pytest.param(0.1, id="good"), pytest.param(-0.1, id="bad")])
@pytest.mark.parametrize("function", [case for case in EVERY if case.id not in KEEP_EQUAL])
def test_equal_credit_tells_nothing_apart_and_is_exactly_zero(
    function: normalise.Normalise, entry: float, size: int, dtype: torch.dtype
) -> None:
    credit = torch.full((size, 2), entry, dtype=dtype)

    found = function(credit, torch.ones(size, 2).bool(), torch.zeros(size, dtype=torch.int64))

    assert found.eq(0).all()


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(normalise.group_std, id="group std"),
        pytest.param(normalise.group_std_plus, id="group std plus"),
        pytest.param(normalise.group_mean_std, id="group mean and std"),
        pytest.param(normalise.whiten, id="whiten"),
        pytest.param(normalise.block_whiten(3), id="whiten in blocks"),
    ],
)
def test_a_spread_of_at_most_the_least_is_no_spread(function: normalise.Normalise) -> None:
    # 1, 2, 3 have standard deviation 1
    grids = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3).bool(), torch.tensor([0])

    assert partial(function, min_std=1.0)(*grids).eq(0).all()
    assert partial(function, min_std=0.99)(*grids).ne(0).any()
    assert function(grids[0] * 2.0**-30, *grids[1:]).eq(0).all()
    assert function(grids[0] * 2.0**-19, *grids[1:]).ne(0).any()


@given(grids())
def test_a_little_more_than_the_spread_makes_credit_smaller_by_its_share(grid: Grids) -> None:
    credit, mask, groups = grid
    found, spread = normalise.group_std_plus(credit, mask, groups, eps=0.25), normalise.group_std(credit, mask, groups)

    scaled = normalise.group_std_plus(8 * credit, mask, groups, eps=2.0)
    torch.testing.assert_close(scaled, found, rtol=1e-12, atol=0)
    for group in groups.unique().tolist():
        came = entries_of(group, credit, mask, groups)
        if len(came) > 1 and len(came.unique()) > 1:
            share = came.std() / (came.std() + 0.25)
            torch.testing.assert_close(
                entries_of(group, found, mask, groups), share * entries_of(group, spread, mask, groups)
            )


def test_what_is_added_to_a_spread_must_be_positive() -> None:
    with pytest.raises(InputError, match="must be positive, got 0"):
        normalise.group_std_plus(CREDIT, MASK, GROUPS, eps=0.0)


@given(grids())
def test_dividing_by_the_spread_keeps_signs_and_no_scale(grid: Grids) -> None:
    credit, mask, groups = grid
    found = normalise.group_std(credit, mask, groups)

    torch.testing.assert_close(normalise.group_std(8 * credit, mask, groups), found, rtol=1e-12, atol=0)
    for group in (0, 2, 3):
        entries, came = (entries_of(group, g, mask, groups) for g in (found, credit))
        if len(came) > 1 and len(came.unique()) > 1:
            assert torch.equal(entries.sign(), came.sign())
            torch.testing.assert_close(entries.std(), torch.ones((), dtype=torch.float64))
        else:
            assert entries.eq(0).all()


@given(grids(), st.sampled_from([0.0, 2.0, -32.0]))
def test_a_normalised_group_has_mean_nought_and_spread_one_whatever_is_added(grid: Grids, shift: float) -> None:
    credit, mask, groups = grid
    found = normalise.group_mean_std(credit, mask, groups)

    moved = normalise.group_mean_std(credit + shift, mask, groups)
    torch.testing.assert_close(moved, found, rtol=1e-10, atol=1e-10)
    for group in (0, 2, 3):
        entries, came = (entries_of(group, g, mask, groups) for g in (found, credit))
        if len(came.unique()) > 1:
            assert abs(float(entries.mean())) < 1e-12
            assert abs(float(entries.std()) - 1) < 1e-12
        else:
            assert entries.eq(0).all()


@given(grids())
def test_normalising_is_dividing_what_was_centred_and_whitening_is_normalising_one_group(grid: Grids) -> None:
    credit, mask, groups = grid
    one = torch.zeros_like(groups)
    centred = credit.clone()
    for group in groups.unique():
        centred[groups == group] -= entries_of(int(group), credit, mask, groups).mean()

    found = normalise.group_mean_std(credit, mask, groups)
    torch.testing.assert_close(normalise.group_std(centred, mask, groups), found, rtol=1e-9, atol=1e-9)
    assert torch.equal(normalise.whiten(credit, mask, groups), normalise.group_mean_std(credit, mask, one))


@given(grids())
def test_against_the_others_a_group_sums_to_nothing_and_is_centred_credit_stretched(grid: Grids) -> None:
    credit, mask, groups = grid
    found = normalise.leave_one_out(credit, mask, groups)

    for group in (0, 2, 3):
        entries, came = (entries_of(group, g, mask, groups) for g in (found, credit))
        if len(came) > 1:
            stretched = len(came) / (len(came) - 1) * (came - came.mean())
            torch.testing.assert_close(entries, stretched, rtol=0, atol=1e-12)
        assert abs(float(entries.sum())) < 1e-11


@pytest.mark.parametrize("function", EVERY)
@FEWER
@given(grid=grids())
def test_no_normalisation_writes_into_its_arguments(function: normalise.Normalise, grid: Grids) -> None:
    before = [part.clone() for part in grid]

    function(*grid)

    assert all(torch.equal(*pair) for pair in zip(grid, before, strict=True))


def test_what_steps_added_sets_the_scale_of_sums_to_go() -> None:
    # steps added 2, 1 and 3, 2; mean 2, squares 0 + 1 + 1 + 0 over 3
    credit = torch.tensor([[3.0, 1.0], [5.0, 2.0]], dtype=torch.float64)
    mask, groups = torch.ones(2, 2).bool(), torch.tensor([0, 0])

    found = normalise.group_increment_std(credit, mask, groups)

    torch.testing.assert_close(found, credit / (2 / 3) ** 0.5, rtol=1e-15, atol=0)


@given(grids())
def test_of_single_steps_what_was_added_is_the_credit(grid: Grids) -> None:
    credit, mask, groups = (part[:, :1] if part.dim() == 2 else part for part in grid)

    found = normalise.group_increment_std(credit, mask, groups)

    assert torch.equal(found, normalise.group_std(credit, mask, groups))


def test_process_supervision_by_group_statistics_and_sums_to_go() -> None:
    # step rewards .2 .8 | .6 of one group: mean .5333, sample deviation .3055; every token gets what is still to come
    steps = torch.tensor([[0.2, 0.8], [0.6, 0.0]], dtype=torch.float64)
    mask, groups = torch.tensor([[True, True], [True, False]]), torch.tensor([0, 0])
    mean = (0.2 + 0.8 + 0.6) / 3
    centred = torch.where(mask, steps - mean, 0)

    found = normalise.group_increment_std(centred.flip(1).cumsum(1).flip(1), mask, groups)

    expected = torch.tensor([[-0.218218, 0.872872], [0.218218, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-7)
