"""Rollouts whose values do not tell their steps apart are credited as a whole."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import credit, laws
from apportion.errors import InputError
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.steps.separation import as_whole, merge_unseparated, unseparated
from batches import INF, NAN, SIXTEENTHS, batch_of, random_rows, recut


@pytest.mark.parametrize(
    ("values", "mask", "expected"),
    [
        pytest.param([0.5, 0.5, 0.5], [1, 1, 1], True, id="all alike"),
        pytest.param([0.5, 0.625, 0.5625], [1, 1, 1], True, id="as far apart as is allowed"),
        pytest.param([0.5, 0.6875, 0.5], [1, 1, 1], False, id="too far apart"),
        pytest.param([0.6875, 0.5, 0.5], [1, 1, 1], False, id="too far apart, falling"),
        pytest.param([0.5, 0.5, 9.0], [1, 1, 0], True, id="what is not counted"),
        pytest.param([-0.5, -0.5, 0.0], [1, 1, 0], True, id="what is not counted, below 0"),
        pytest.param([0.5, NAN, INF], [1, 0, 0], True, id="one step"),
        pytest.param([0.5, 0.5, 0.5], [0, 0, 0], False, id="no step"),
        pytest.param([NAN, 0.5, 0.5], [1, 1, 1], False, id="no number"),
        pytest.param([INF, INF, INF], [1, 1, 1], False, id="infinite"),
    ],
)
def test_values_are_alike_when_all_lie_within_the_spread(values: list[float], mask: list[int], expected: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        found = unseparated(torch.tensor([values], dtype=dtype), torch.tensor([mask]).bool(), 0.125)
        assert found.tolist() == [expected]


def test_values_within_a_twentieth_are_alike_unless_another_spread_is_named() -> None:
    values, mask = torch.tensor([[0.5, 0.546875], [0.5, 0.5546875]]), torch.ones(2, 2).bool()

    assert unseparated(values, mask).tolist() == [True, False]
    assert merge_unseparated(splitters.every_token(batch_of("aa", "aa")), values, mask).which.tolist() == [True, False]


def test_a_spread_of_0_takes_equal_values_alone_and_less_is_refused() -> None:
    assert unseparated(torch.tensor([[0.5, 0.5], [0.5, 0.501]]), torch.ones(2, 2).bool(), 0.0).tolist() == [True, False]
    for spread in (-0.1, NAN):
        with pytest.raises(InputError, match="the spread must be 0 or more"):
            unseparated(torch.zeros(1, 1), torch.ones(1, 1).bool(), spread)


def test_the_steps_of_the_chosen_rollouts_become_one() -> None:
    batch = batch_of("paata", "aaa", "pp", "a")
    merged = as_whole(splitters.every_token(batch), torch.tensor([True, False, True, False]))

    assert merged.step_of.tolist() == [[-1, 0, 0, -1, 0], [0, 1, 2, -1, -1], [-1] * 5, [0, -1, -1, -1, -1]]
    assert merged.counts.tolist() == [1, 3, 0, 1]


def test_the_step_grid_narrows_to_the_longest_rollout_that_is_left() -> None:
    batch = batch_of("aaaa", "aa")
    merged = as_whole(splitters.every_token(batch), torch.tensor([True, False]))

    assert merged.width == 2
    assert merged.cell.tolist() == [[0, 0, 0, 0], [2, 3, -1, -1]]
    assert merged.sum(torch.tensor([[1.0, 2, 4, 8], [16, 32, 0, 0]])).tolist() == [[15, 0], [16, 32]]


def test_rewards_go_to_the_one_step_and_its_value_is_the_starting_value() -> None:
    steps = splitters.every_token(batch_of("aaaa", "aa", "p", "a"))
    values = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.25, 0.75, NAN, INF], [NAN] * 4, [0.75, NAN, NAN, NAN]])
    rewards = torch.tensor([[1.0, 2, 4, 8], [16, 32, NAN, INF], [NAN] * 4, [1, NAN, NAN, NAN]])
    found = merge_unseparated(steps, values, steps.mask, 0.25)

    assert found.which.tolist() == [True, False, False, True]
    assert found.values(values).tolist() == [[0.5, 0], [0.25, 0.75], [0, 0], [0.75, 0]]
    assert found.rewards(rewards).tolist() == [[15, 0], [16, 32], [0, 0], [1, 0]]
    assert found.rewards(rewards, gamma=0.5).tolist() == [[4, 0], [16, 32], [0, 0], [1, 0]]


def test_rollouts_that_do_not_count_stay_as_they_are() -> None:
    steps = splitters.every_token(batch_of("aa", "aa"))
    counted = torch.tensor([[True, True], [False, False]])
    found = merge_unseparated(steps, torch.zeros(2, 2), counted)

    assert found.which.tolist() == [True, False]
    assert found.steps.counts.tolist() == [1, 2]


def test_what_is_counted_past_the_last_step_is_no_step() -> None:
    steps = splitters.every_token(batch_of("aa", "a"))
    found = merge_unseparated(steps, torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.ones(2, 2).bool())

    assert found.which.tolist() == [False, True]


def test_it_is_said_once_how_many_rollouts_are_credited_as_a_whole() -> None:
    steps = splitters.every_token(batch_of("aa", "aaa", "a", "aa", "p"))
    values = torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0.5], [0.5, 0, 0], [0, 1, 0], [0, 0, 0]])
    found = merge_unseparated(steps, values, steps.mask)

    assert (found.merged, found.unbroken) == (2, 1)
    with pytest.warns(UserWarning, match="values are alike") as said:
        found.warn()
    assert [str(one.message) for one in said] == [
        "3 of 5 rollouts are credited as a whole: 2 whose step values are alike, 1 without a boundary"
    ]


def test_nothing_is_said_where_all_steps_separate() -> None:
    steps = splitters.every_token(batch_of("aa"))
    found = merge_unseparated(steps, torch.tensor([[0.0, 1.0]]), steps.mask)

    assert found.steps.step_of.tolist() == steps.step_of.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.warn()


def numbers(data: st.DataObject, like: Tensor) -> Tensor:
    drawn = data.draw(st.lists(SIXTEENTHS, min_size=like.numel(), max_size=like.numel()))
    return torch.where(like, torch.tensor(drawn, dtype=torch.float64).view_as(like), 0)


@given(random_rows(), st.data(), st.sampled_from([0.0, 1.0, 100.0]), st.sampled_from([1.0, 0.5]))
def test_credit_is_conserved_through_the_fallback(
    rows: list[Rollout], data: st.DataObject, spread: float, gamma: float
) -> None:
    steps = splitters.every_token(collate(rows))
    rewards, values = numbers(data, steps.mask), numbers(data, steps.mask)
    found = merge_unseparated(steps, values, steps.mask, spread)
    credited = credit.gae(found.rewards(rewards, gamma=gamma), found.values(values), gamma=gamma, lam=0.0)
    before = credit.gae(rewards, values, gamma=gamma, lam=0.0)

    def total(grid: Tensor) -> Tensor:
        return (grid * gamma ** torch.arange(grid.shape[1], dtype=torch.float64)).sum(1)

    assert torch.equal(total(credited), total(before))
    assert bool((laws.conservation(credited, rewards, values[:, 0], gamma=gamma) == 0).all())


@given(random_rows(), st.data(), st.integers(1, 7))
def test_a_merged_answer_is_the_whole_one_and_the_others_are_untouched_in_any_layout(
    rows: list[Rollout], data: st.DataObject, width: int
) -> None:
    batch = collate(rows)
    which = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    fine, whole = splitters.every_token(batch), splitters.whole(batch)
    found = as_whole(fine, which)
    expected = torch.where(batch.of_tokens(which), whole.step_of, fine.step_of)

    assert torch.equal(found.step_of, expected)
    assert torch.equal(found.counts, torch.where(which, whole.counts, fine.counts))
    cut = recut(batch, width)
    assert torch.equal(as_whole(splitters.every_token(cut), which).step_of[cut.valid_mask], expected[batch.valid_mask])


@given(random_rows(), st.data())
def test_gradients_reach_the_rewards_of_merged_rollouts_and_nothing_past_the_steps(
    rows: list[Rollout], data: st.DataObject
) -> None:
    steps = splitters.every_token(collate(rows))
    rewards = torch.where(steps.mask, numbers(data, steps.mask), NAN).requires_grad_()
    found = merge_unseparated(steps, torch.zeros_like(rewards), steps.mask)
    found.rewards(rewards).sum().backward()

    assert rewards.grad is not None
    assert torch.equal(rewards.grad, steps.mask.double())
