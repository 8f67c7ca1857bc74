"""Losses of the critic, and explained variance."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from apportion import losses
from batches import INF, NAN
from grids import ON, gradient, grid, marks

NUMBERS = st.lists(st.tuples(*[st.integers(-64, 64).map(lambda n: n / 16)] * 3), min_size=2, max_size=8)
VALUES, RETURNS, OLD, COUNT = grid(0.2, 0.4, 7), grid(1, 0, -7), grid(0, 0.4, 0), marks(1, 1, 0)


def mean(loss: torch.Tensor) -> float:
    return losses.total(loss, losses.token_mean(COUNT, torch.zeros(1, 3, dtype=torch.int64)).double()).item()


def test_the_value_loss_is_half_the_squared_error_and_reaches_the_critic() -> None:
    loss = partial(losses.value_loss, returns=RETURNS, mask=COUNT)

    assert mean(loss(VALUES)) == pytest.approx(0.2, rel=1e-7)
    assert gradient(lambda new: loss(new) / 2, VALUES) == pytest.approx([-0.4, 0.2, 0], rel=1e-12)


def test_the_clipped_value_loss_stops_where_the_critic_has_moved_enough() -> None:
    loss = partial(losses.value_loss_clipped, old_values=OLD, returns=RETURNS, mask=COUNT, clip=0.1)

    assert mean(loss(VALUES)) == pytest.approx(0.2425, rel=1e-7)
    assert gradient(lambda new: loss(new) / 2, VALUES) == pytest.approx([0, 0.2, 0], rel=1e-12)


@pytest.mark.parametrize(
    ("value", "loss", "slope"),
    [
        pytest.param(0.5, 1.53125, 0.0, id="towards the return, by more than the clip: no further"),
        pytest.param(0.125, 1.7578125, -1.875, id="towards it, by less"),
        pytest.param(-0.5, 3.125, -2.5, id="away from it: pulled back"),
    ],
)
def test_the_clipped_value_loss_towards_and_away_from_a_return_by_hand(value: float, loss: float, slope: float) -> None:
    clipped = partial(losses.value_loss_clipped, old_values=grid(0), returns=grid(2), mask=marks(1), clip=0.25)

    assert clipped(grid(value)).tolist() == [[loss]]
    assert gradient(clipped, grid(value)) == [slope]


def test_the_value_clip_is_a_fifth_unless_told_otherwise() -> None:
    near, far = (
        gradient(partial(losses.value_loss_clipped, old_values=grid(0), returns=grid(2), mask=marks(1)), grid(v))
        for v in (0.19, 0.21)
    )

    assert near == pytest.approx([-1.81], rel=1e-12)
    assert far == [0]


@given(NUMBERS, st.floats(0.01, 8))
def test_the_clipped_value_loss_is_never_below_the_plain_one_and_is_it_within_the_clip(
    columns: list[tuple[float, float, float]], clip: float
) -> None:
    values, old, returns = (grid(*column) for column in zip(*columns, strict=True))
    mask = torch.ones_like(values).bool()

    plain = losses.value_loss(values, returns, mask)
    clipped = losses.value_loss_clipped(values, old, returns, mask, clip=clip)

    assert (clipped >= plain).all()
    within = (values - old).abs() <= clip
    torch.testing.assert_close(clipped[within], plain[within], rtol=1e-12, atol=1e-12)


def test_no_gradient_flows_into_what_the_critic_is_to_learn() -> None:
    returns, old = grid(1, 0).requires_grad_(), grid(0.5, 0).requires_grad_()
    values = grid(0.25, 0.5).requires_grad_()

    losses.value_loss(values, returns, ON).sum().backward()
    losses.value_loss_clipped(values, old, returns, ON).sum().backward()

    assert values.grad is not None
    assert returns.grad is None
    assert old.grad is None


# --- explained variance


@pytest.mark.parametrize(
    ("values", "returns", "explained"),
    [
        pytest.param([0.2, 0.4], [1.0, 0.0], -0.44, id="worse than a constant"),
        pytest.param([1.0, 0.0], [1.0, 0.0], 1.0, id="all of it"),
        pytest.param([5.0, 5.0], [1.0, 0.0], 0.0, id="a constant"),
        pytest.param([6.0, 5.0], [1.0, 0.0], 1.0, id="all but a constant"),
        pytest.param([0.5, 0.0], [1.0, 0.0], 0.75, id="half the way"),
    ],
)
def test_explained_variance_of_two_returns_by_hand(values: list[float], returns: list[float], explained: float) -> None:
    found = losses.explained_variance(grid(*values, NAN), grid(*returns, INF), marks(1, 1, 0))

    assert found == pytest.approx(explained, abs=1e-12)


@pytest.mark.parametrize("count", [pytest.param(n, id=str(n)) for n in (0, 1, 3)])
def test_of_returns_that_are_all_alike_nothing_can_be_explained(count: int) -> None:
    mask = torch.arange(4).unsqueeze(0) < count
    returns = torch.where(mask, 0.1, torch.tensor([7.0, -7.0, 1.0, 5.0]))

    assert losses.explained_variance(torch.tensor([[0.1, 0.2, 0.4, 9.0]]), returns, mask) is None


def test_explained_variance_of_returns_that_differ_in_the_last_digits_alone_is_a_number() -> None:
    returns = torch.tensor([[1e4, 1e4 + 1e-3]])

    assert losses.explained_variance(returns, returns, ON) == 1


@given(NUMBERS, st.integers(1, 4), st.integers(-8, 8))
def test_explained_variance_is_at_most_one_and_the_same_in_any_unit(
    columns: list[tuple[float, float, float]], scale: int, offset: int
) -> None:
    values, _, returns = (grid(*column) for column in zip(*columns, strict=True))
    mask = torch.ones_like(values).bool()
    assume(returns.min() < returns.max())

    found = losses.explained_variance(values, returns, mask)
    assert found is not None
    assert found <= 1
    assert losses.explained_variance(values * scale + offset, returns * scale - offset, mask) == pytest.approx(found)
