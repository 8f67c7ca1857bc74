"""Whitening by the credit of the whole run."""

from __future__ import annotations

import dataclasses
import json

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import normalise
from apportion.normalise import RunningMoments
from batches import INF, NAN

Batch = tuple[Tensor, Tensor]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Credit [N, K] in float64 with exact sums, and a mask that may be empty."""
    rows, steps = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    numbers = draw(st.lists(st.integers(-64, 64), min_size=rows * steps, max_size=rows * steps))
    marks = draw(st.lists(st.booleans(), min_size=rows * steps, max_size=rows * steps))
    return torch.tensor(numbers, dtype=torch.float64).view(rows, steps) / 16, torch.tensor(marks).view(rows, steps)


def after(several: list[Batch]) -> RunningMoments:
    seen = RunningMoments()
    for credit, mask in several:
        seen = seen.updated(credit, mask)
    return seen


def test_the_moments_of_two_batches_by_hand() -> None:
    # 1, 3, then 5, 7: mean 4, squares 9 + 1 + 1 + 9
    first = RunningMoments().updated(torch.tensor([[1.0, 3.0, NAN]]), torch.tensor([[True, True, False]]))
    both = first.updated(torch.tensor([[5.0], [7.0]]), torch.tensor([[True], [True]]))

    assert (first.count, first.mean, first.squares) == (2, 2, 2)
    assert (both.count, both.mean, both.squares) == (4, 4, 20)
    assert both.std == (20 / 3) ** 0.5


@given(st.lists(batches(), min_size=1, max_size=4))
def test_batches_one_by_one_leave_the_moments_of_all_of_them(several: list[Batch]) -> None:
    seen = after(several)
    together = torch.cat([credit[mask] for credit, mask in several])

    assert seen.count == len(together)
    if len(together):
        assert abs(seen.mean - float(together.mean())) < 1e-12
    if len(together) > 1:
        assert abs(seen.std - float(together.std())) < 1e-12


@given(st.lists(batches(), min_size=2, max_size=4))
def test_the_order_of_batches_does_not_matter(several: list[Batch]) -> None:
    forth, back = after(several), after(several[::-1])

    assert forth.count == back.count
    assert abs(forth.mean - back.mean) < 1e-12
    assert abs(forth.squares - back.squares) < 1e-10


@given(batches())
def test_after_one_batch_running_whitening_is_whitening(batch: Batch) -> None:
    credit, mask = batch
    groups = torch.zeros(len(credit), dtype=torch.int64)
    garbage = torch.where(mask, credit, INF)

    found = RunningMoments().updated(garbage, mask).whiten(garbage, mask, groups)

    torch.testing.assert_close(found, normalise.whiten(credit, mask, groups), rtol=1e-12, atol=1e-12)


def test_while_nothing_was_told_apart_all_is_nought() -> None:
    one = torch.tensor([[2.0]]), torch.tensor([[True]]), torch.tensor([0])

    assert RunningMoments().whiten(*one).tolist() == [[0]]
    assert after([one[:2]]).whiten(*one).tolist() == [[0]]
    spread = RunningMoments(count=3.0, mean=2.0, squares=2.0)  # deviation 1
    assert spread.whiten(3 * one[0], *one[1:], min_std=1.0).tolist() == [[0]]
    assert spread.whiten(3 * one[0], *one[1:], min_std=0.99).tolist() == [[4]]


def test_a_late_batch_is_measured_by_the_whole_run() -> None:
    # mean 4, deviation 2 of what was seen: a credit of 10 is 3 deviations out
    seen = RunningMoments(count=5.0, mean=4.0, squares=16.0)
    credit, mask = torch.tensor([[10.0, NAN]]), torch.tensor([[True, False]])

    assert seen.whiten(credit, mask, torch.tensor([0])).tolist() == [[3, 0]]


def test_the_moments_are_plain_numbers_that_a_checkpoint_can_hold() -> None:
    seen = RunningMoments().updated(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2).bool())

    assert RunningMoments(**json.loads(json.dumps(dataclasses.asdict(seen)))) == seen
