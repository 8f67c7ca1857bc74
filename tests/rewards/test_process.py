"""Step rewards that are worked out from other numbers of the steps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import credit
from apportion.errors import InputError
from apportion.rewards.process import log_ratio, min_form
from batches import INF, NAN


@st.composite
def grids(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Rewards [N, K] in float64 and how many of a row's are steps."""
    rows, steps = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    numbers = draw(st.lists(st.integers(-16, 16), min_size=rows * steps, max_size=rows * steps))
    counts = draw(st.lists(st.integers(0, steps), min_size=rows, max_size=rows))
    mask = torch.arange(steps) < torch.tensor(counts).unsqueeze(1)
    return torch.tensor(numbers, dtype=torch.float64).view(rows, steps) / 16, mask


def test_the_min_form_of_two_steps_by_hand() -> None:
    # weights of 0 and log 3 at temperature 1: 3/4 and 1/4
    rewards = torch.tensor([[0.0, math.log(3), NAN]], dtype=torch.float64)

    found = min_form(rewards, torch.tensor([[True, True, False]]), temperature=1.0)

    torch.testing.assert_close(found, torch.tensor([[0, math.log(3) / 4, 0]], dtype=torch.float64))


def test_the_temperature_is_a_tenth_unless_told_otherwise() -> None:
    rewards = torch.tensor([[0.0, math.log(3) / 10]], dtype=torch.float64)

    found = min_form(rewards, torch.ones(1, 2).bool())

    torch.testing.assert_close(found, torch.tensor([[0, math.log(3) / 40]], dtype=torch.float64))


@given(grids(), st.sampled_from([0.01, 0.1, 1.0, 100.0]))
def test_the_min_form_sums_to_something_between_the_lowest_and_the_mean(
    grid: tuple[Tensor, Tensor], temperature: float
) -> None:
    rewards, mask = grid
    found = min_form(torch.where(mask, rewards, INF), mask, temperature=temperature)

    assert found[~mask].eq(0).all()
    for n in range(len(rewards)):
        own = rewards[n][mask[n]]
        if len(own):
            assert float(own.min()) - 1e-12 <= float(found[n].sum()) <= float(own.mean()) + 1e-12


@given(grids())
def test_in_the_cold_the_return_to_go_is_the_lowest_reward_up_to_where_it_stands(grid: tuple[Tensor, Tensor]) -> None:
    rewards, mask = grid
    found = min_form(rewards, mask, temperature=1e-4)

    to_go = credit.to_go(found, torch.zeros_like(found))

    for n in range(len(rewards)):
        own = rewards[n][mask[n]]
        if len(own) and int((own == own.min()).sum()) == 1:
            lowest = int(own.argmin())
            expected = torch.where(torch.arange(len(own)) <= lowest, own.min(), 0)
            torch.testing.assert_close(to_go[n][mask[n]], expected, rtol=0, atol=1e-12)


def test_alike_steps_share_the_reward_alike() -> None:
    assert min_form(torch.full((1, 4), 0.5), torch.ones(1, 4).bool()).tolist() == [[0.125] * 4]


@pytest.mark.parametrize("temperature", [pytest.param(t, id=str(t)) for t in (0.0, -1.0, NAN)])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(InputError, match=f"must be positive, got {temperature}"):
        min_form(torch.zeros(1, 1), torch.ones(1, 1).bool(), temperature=temperature)


def test_implicit_rewards_by_hand_with_garbage_behind_the_mask() -> None:
    found = log_ratio(
        torch.tensor([[-1.0, -2.0, NAN]]),
        torch.tensor([[-1.5, -1.0, -INF]]),
        torch.tensor([[True, True, False]]),
        beta=0.5,
    )

    assert found.tolist() == [[0.25, -0.5, 0]]
    assert log_ratio(torch.tensor([[-1.0]]), torch.tensor([[-21.0]]), torch.tensor([[True]])).tolist() == [[1.0]]


@given(grids())
def test_implicit_rewards_sum_to_the_log_ratio_of_the_answer(grid: tuple[Tensor, Tensor]) -> None:
    logprobs, mask = grid
    ref = logprobs.flip(0) - 1

    found = log_ratio(logprobs, ref, mask, beta=2.0)

    expected = 2 * (torch.where(mask, logprobs, 0).sum(1) - torch.where(mask, ref, 0).sum(1))
    torch.testing.assert_close(found.sum(1), expected)
