"""Other people's numbers: what torchrl and verl computed, and definitions written the way rlax writes them.

`tools/peer_numbers.py` made the files, from the libraries as they are installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import credit
from apportion.rollouts import Rollouts
from apportion.steps import splitters

FOLDER = Path(__file__).parent / "witnesses"


def cases(name: str) -> list[Any]:
    witness = json.loads((FOLDER / f"{name}.json").read_text())
    return [
        pytest.param(case, id=f"{witness['made_by']}, gamma {case['gamma']}, lam {case['lam']}")
        for case in witness["cases"]
    ]


def double(grid: list[list[float]]) -> Tensor:
    return torch.tensor(grid, dtype=torch.float64)


def batch_with(rollout_of: Tensor, action_mask: Tensor) -> Rollouts:
    count = int(rollout_of.max()) + 1
    return Rollouts(
        tokens=torch.zeros_like(rollout_of),
        rollout_of=rollout_of,
        action_mask=action_mask,
        turns=torch.zeros_like(rollout_of),
        groups=torch.zeros(count, dtype=torch.int64),
        outcome=torch.zeros(count, dtype=torch.float64),
        ended=torch.ones(count, dtype=torch.bool),
    )


def token_credit(batch: Rollouts, case: dict[str, Any]) -> Tensor:
    steps = splitters.every_token(batch)
    rewards, values = steps.sum(double(case["rewards"])), steps.first(double(case["values"]))
    return steps.to_tokens(credit.gae(rewards, values, gamma=case["gamma"], lam=case["lam"]))


@pytest.mark.parametrize("case", cases("torchrl"))
def test_several_trajectories_in_a_row_have_the_advantages_that_torchrl_gives_them(case: dict[str, Any]) -> None:
    ends = torch.tensor(case["marks"])
    number = torch.cat([torch.zeros(1, dtype=torch.int64), ends.flatten().cumsum(0)[:-1]]).view_as(ends)

    found = token_credit(batch_with(number, torch.ones_like(ends)), case)

    torch.testing.assert_close(found, double(case["advantages"]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", cases("verl"))
def test_round_tool_tokens_the_advantages_are_those_of_verl(case: dict[str, Any]) -> None:
    mask = torch.tensor(case["marks"])
    rows = torch.arange(len(mask)).unsqueeze(1).expand_as(mask).contiguous()

    found = token_credit(batch_with(rows, mask), case)

    torch.testing.assert_close(found, double(case["advantages"]), rtol=0, atol=1e-6)


def lambda_returns(rewards: list[float], after: list[float], discounts: list[float], lam: float) -> list[float]:
    """G[t] = r[t] + discount[t] * ((1 - lam) * v[t+1] + lam * G[t+1]), and beyond the end G is the last value."""
    returns, later = [], after[-1]
    for reward, value, discount in zip(rewards[::-1], after[::-1], discounts[::-1], strict=True):
        later = reward + discount * ((1 - lam) * value + lam * later)
        returns.append(later)
    return returns[::-1]


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=12),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.3, 0.95, 1.0]),
)
def test_credit_is_the_lambda_return_less_the_value(steps: list[tuple[float, float]], gamma: float, lam: float) -> None:
    rewards, values = ([step[side] for step in steps] for side in (0, 1))
    discounts = [gamma] * (len(steps) - 1) + [0.0]
    returns = lambda_returns(rewards, [*values[1:], 0.0], discounts, lam)

    found = credit.gae(double([rewards]), double([values]), gamma=gamma, lam=lam)

    torch.testing.assert_close(found, double([returns]) - double([values]), rtol=0, atol=1e-10)
