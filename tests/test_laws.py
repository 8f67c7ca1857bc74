"""Laws: they hold for what is right, and find what is wrong."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import credit, laws
from batches import INF, NAN

REWARDS, VALUES = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[0.5, 1.0, 0.25]])
NUMBERS = st.lists(st.floats(-10, 10), min_size=6, max_size=6)


def grid(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).view(2, 3)


def test_what_is_lost_from_a_sum_of_credit_by_hand() -> None:
    # 1 + 0 + 2 - 0.5 = 2.5, and this credit sums to 2.25
    errors = laws.conservation(torch.tensor([[1.5, -1.0, 1.75]]), REWARDS, VALUES[:, 0])

    assert errors.tolist() == [-0.25]


def test_what_is_lost_from_discounted_credit_by_hand() -> None:
    # credit peeled by gamma * lam = 1/4: 1 - 1/4 * 2, 2 - 1/4 * 4, 4; discounted by 1, 1/2, 1/4: 0.5 + 0.5 + 1
    # rewards discounted: 1 + 0 + 0.5, less the starting value 0.5
    errors = laws.conservation(torch.tensor([[1.0, 2.0, 4.0]]), REWARDS, VALUES[:, 0], gamma=0.5, lam=0.5)

    assert errors.tolist() == [1.0]


def test_totals_in_one_column_stand_for_undiscounted_rewards() -> None:
    found = credit.telescoping(REWARDS, VALUES)

    assert laws.conservation(found, torch.tensor([[3.0]]), VALUES[:, 0]).tolist() == [0]
    assert laws.conservation(found, torch.tensor([[2.0]]), VALUES[:, 0]).tolist() == [1]


@given(NUMBERS, NUMBERS, st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_gae_loses_nothing_at_any_gamma_and_lam(r: list[float], v: list[float], gamma: float, lam: float) -> None:
    rewards, values = grid(r), grid(v)
    found = credit.gae(rewards, values, gamma=gamma, lam=lam)

    errors = laws.conservation(found, rewards, values[:, 0], gamma=gamma, lam=lam)
    torch.testing.assert_close(errors, torch.zeros_like(errors), rtol=0, atol=1e-11)


@given(NUMBERS, NUMBERS, st.sampled_from([1, 2, 3, 6]))
def test_telescoping_is_consistent_and_traceable(r: list[float], v: list[float], steps: int) -> None:
    rewards, values = grid(r).view(-1, steps), grid(v).view(-1, steps)

    consistent = laws.consistency(credit.telescoping(rewards, values), credit.telescoping, rewards, values)
    traceable = laws.traceability(credit.telescoping(rewards, values), credit.telescoping, rewards, values)

    torch.testing.assert_close(consistent, torch.zeros(6 // steps, (steps + 1) // 2).double(), rtol=0, atol=1e-11)
    torch.testing.assert_close(traceable, torch.zeros(6 // steps, steps).double(), rtol=0, atol=1e-11)


def test_reward_to_go_is_neither_consistent_nor_traceable() -> None:
    # pairs joined: (1 + 0, value .5), (2 + 0, value .25): to go 3 - .5, 2 - .25
    # fine: 3 - .5, 2 - 1, 2 - .25, 0 - 0
    assert laws.consistency(credit.to_go(REWARDS, VALUES), credit.to_go, REWARDS, VALUES).tolist() == [[-1.0, 0.0]]
    # alone, a step goes no further than itself: 1 - .5, 0 - 1, 2 - .25
    assert laws.traceability(credit.to_go(REWARDS, VALUES), credit.to_go, REWARDS, VALUES).tolist() == [
        [-2.0, -2.0, 0.0]
    ]


def test_credit_scaled_by_its_place_is_found_out_by_both() -> None:
    def weighted(rewards: Tensor, values: Tensor) -> Tensor:
        return credit.telescoping(rewards, values) * torch.arange(1, rewards.shape[1] + 1)

    # joined: 1 * (1 + .25 - .5), 2 * (2 - .25); fine: 1.5, 2 * -.75, 3 * 1.75, 0
    assert laws.consistency(weighted(REWARDS, VALUES), weighted, REWARDS, VALUES).tolist() == [[0.75, -1.75]]
    # alone all are first: -.75 against 2 * -.75, 1.75 against 3 * 1.75
    assert laws.traceability(weighted(REWARDS, VALUES), weighted, REWARDS, VALUES).tolist() == [[0.0, 0.75, -3.5]]


def test_a_law_is_not_taken_in_by_values_past_the_next_state() -> None:
    def peeking(rewards: Tensor, values: Tensor) -> Tensor:
        return rewards + values.flip(1).cumsum(1).flip(1)

    # alone a step sees its own value and the next one: 1 + .5 + 1, 0 + 1 + .25, 2 + .25
    # in its row: 1 + 1.75, 0 + 1.25, 2 + .25
    assert laws.traceability(peeking(REWARDS, VALUES), peeking, REWARDS, VALUES).tolist() == [[-0.25, 0.0, 0.0]]


def test_the_credit_of_each_group_is_added_up() -> None:
    errors = laws.group_balance(torch.tensor([[1.0, 2.0], [4.0, 0.0], [-3.0, 0.5]]), torch.tensor([0, 2, 0]))

    assert errors.tolist() == [0.5, 0, 4]


def test_silence_is_nothing_where_nothing_counts_and_a_number_where_it_does() -> None:
    counted = torch.tensor([[True, True, True, False, False]])

    errors = laws.silence(torch.tensor([[5.0, NAN, -INF, 0.0, -2.0]]), counted)

    assert errors.tolist() == [[0, INF, INF, 0, -2]]
    assert laws.silence(torch.tensor([[0.0, NAN]]), torch.zeros(1, 2).bool()).isnan().tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("errors", "worst", "place"),
    [
        pytest.param([0.0, -0.5, 0.25], 0.5, 1, id="largest by size"),
        pytest.param([0.0, 1.0, NAN], INF, 2, id="nan is worse than any"),
        pytest.param([-INF, 1.0, 0.0], INF, 0, id="infinite"),
        pytest.param([0.0, INF, 0.0], INF, 1, id="plus infinite"),
        pytest.param([], 0.0, 0, id="none"),
    ],
)
def test_a_residual_is_the_largest_error_and_its_place(errors: list[float], worst: float, place: int) -> None:
    found = laws.residual("law", torch.tensor(errors), scale=1.0, dtype=torch.float64)

    assert (found.worst, found.place, found.law) == (worst, place, "law")
    assert found.holds is (worst == 0)


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [
        pytest.param(torch.float64, 1.0, 2.0**-46, id="f64"),
        pytest.param(torch.float32, 1.0, 2.0**-17, id="f32"),
        pytest.param(torch.float32, 0.0, 2.0**-17, id="small numbers"),
        pytest.param(torch.float32, 8.0, 2.0**-14, id="large numbers"),
    ],
)
def test_rounding_allows_64_units_in_the_last_place(dtype: torch.dtype, scale: float, tolerance: float) -> None:
    just_in = laws.residual("law", torch.tensor([tolerance], dtype=torch.float64), scale=scale, dtype=dtype)
    just_out = laws.residual("law", torch.tensor([1.01 * tolerance], dtype=torch.float64), scale=scale, dtype=dtype)

    assert just_in.tolerance == tolerance
    assert just_in.holds
    assert not just_out.holds
    assert laws.residual("law", torch.tensor([]), scale=scale, dtype=dtype).tolerance == tolerance


def test_a_residual_says_whether_the_law_holds_and_where_it_breaks() -> None:
    assert str(laws.Residual("law", 0.25, 3, 0.5)) == "law: holds (largest residual 0.25, rounding allows 0.5)"
    assert str(laws.Residual("law", 0.25, 3, 0.1)).startswith("law: BROKEN at 3 (")


def test_sums_are_made_in_float64() -> None:
    tiny = torch.tensor([[1.0, 2.0**-30]])

    assert laws.conservation(tiny, torch.tensor([[1.0, 0.0]]), torch.zeros(1)).tolist() == [2.0**-30]
    assert laws.conservation(torch.tensor([[1.0, 0.0]]), tiny, torch.zeros(1)).tolist() == [-(2.0**-30)]
    assert laws.group_balance(tiny, torch.tensor([0])).tolist() == [1 + 2.0**-30]


def test_a_column_of_credit_that_was_changed_afterwards_is_found_out() -> None:
    worked_out = credit.telescoping(REWARDS, VALUES)
    changed = worked_out + torch.tensor([[0.0, 0.25, 0.0]])

    assert laws.consistency(changed, credit.telescoping, REWARDS, VALUES).tolist() == [[-0.25, 0.0]]
    assert laws.traceability(changed, credit.telescoping, REWARDS, VALUES).tolist() == [[0.0, -0.25, 0.0]]
