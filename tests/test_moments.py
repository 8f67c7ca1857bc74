"""Mean and spread of what counts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.moments import divided, moments
from batches import INF, NAN

ENTRIES = torch.tensor([[1.0, NAN], [5.0, 5.0], [3.0, INF], [7.0, 9e9], [NAN, 2.0]])
MASK = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 0], [0, 1]]).bool()
GROUPS = torch.tensor([0, 1, 0, 3, 0])  # 1, 3, 2; 5, 5; none of group 2; 7


def test_groups_of_three_two_none_and_one_by_hand() -> None:
    found = moments(ENTRIES, MASK, GROUPS)

    assert found.count.tolist() == [3, 2, 0, 1]
    assert found.mean[[0, 1, 3]].tolist() == [2, 5, 7]
    assert found.std[[0, 1, 3]].tolist() == [1, 0, 0]
    assert found.mean.dtype == torch.float64


@pytest.mark.parametrize("entry", [pytest.param(0.1, id="good"), pytest.param(-0.1, id="bad")])
@pytest.mark.parametrize("count", [pytest.param(count, id=str(count)) for count in (1, 3, 7, 49)])
def test_the_mean_of_equal_entries_is_that_entry_to_the_last_bit(count: int, entry: float) -> None:
    entries = torch.tensor([[entry, 9.0]] * count, dtype=torch.float64)

    found = moments(entries, torch.tensor([[True, False]] * count), torch.zeros(count, dtype=torch.int64))

    assert (found.mean.tolist(), found.std.tolist()) == ([entry], [0])


@given(st.lists(st.integers(-64, 64), min_size=2, max_size=9))
def test_the_moments_of_one_group_are_those_of_torch(numbers: list[int]) -> None:
    entries = torch.tensor([numbers], dtype=torch.float64) / 16

    found = moments(entries, torch.ones_like(entries).bool(), torch.tensor([0]))

    assert abs(float(found.mean) - float(entries.mean())) < 1e-13
    assert abs(float(found.std) - float(entries.std())) < 1e-13


def test_entries_close_together_far_from_nought_keep_their_spread() -> None:
    # two passes: the mean goes first, or float32 would see nothing of it
    entries = torch.tensor([[4096.0, 4096.5, 4097.0]])

    assert float(moments(entries, torch.ones(1, 3).bool(), torch.tensor([0])).std) == 0.5


def test_a_batch_without_rows_has_no_groups() -> None:
    empty = torch.zeros(0, 3), torch.zeros(0, 3).bool(), torch.zeros(0, dtype=torch.int64)

    assert moments(*empty).count.tolist() == []


def test_dividing_leaves_nought_where_nothing_counts_or_spreads() -> None:
    std = torch.tensor([[2.0], [0.5], [0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, False], [True, True], [True, True]])

    found = divided(torch.tensor([[4.0, NAN], [1.0, 2.0], [3.0, 3.0]]), std, mask, 0.5)

    assert found.tolist() == [[2, 0], [0, 0], [0, 0]]
    assert found.dtype == torch.float32
