"""Credit of every token, straight from token grids."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import compiled, credit
from apportion.rollouts import Rollout, Rollouts, collate, pack
from apportion.steps import splitters
from apportion.token_credit import token_gae
from batches import FEWER, INF, NAN, batch_of, random_rows, recut

DISCOUNTS = st.sampled_from([0.0, 0.5, 0.9, 1.0])


@pytest.fixture(params=[pytest.param(0, id="compiled"), pytest.param(2**40, id="by steps")])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: compiled however small, and never."""
    if request.param == 0:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "LEAST", request.param)


@pytest.mark.usefixtures("way")
def test_round_tool_tokens_by_hand() -> None:
    rewards = torch.tensor([[0.1, 9, 9, -0.2, 1.0], [0, 0.3, -0.5, 7, 7]], dtype=torch.float64)
    values = torch.tensor([[0.4, NAN, 50, 0.6, 0.5], [0.2, 0.1, 0.3, INF, -40]], dtype=torch.float64)

    found = token_gae(batch_of("attaa", "aaatt"), rewards, values, gamma=0.9, lam=0.8)

    expected = torch.tensor([[0.2472, 0, 0, 0.01, 0.5], [-0.18632, -0.106, -0.8, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_rollouts_in_one_row_do_not_see_each_other() -> None:
    rewards = torch.tensor([[0, 0, 1.0, 0.5, 0, -1.0]])
    values = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])

    found = token_gae(pack(batch_of("aaa", "a", "aa"), 6), rewards, values, gamma=0.9, lam=0.8)

    torch.testing.assert_close(found, torch.tensor([[0.49328, 0.574, 0.7, 0.1, -1.112, -1.6]]), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("way")
def test_gradients_go_through_where_they_are_wanted() -> None:
    rewards, values = torch.zeros(1, 2), torch.tensor([[0.5, 0.25]], requires_grad=True)

    token_gae(batch_of("aa"), rewards, values, gamma=1.0, lam=0.5)[0, 0].backward()

    assert values.grad is not None
    assert values.grad.tolist() == [[-1.0, 0.5]]


def laid(batch: Rollouts, numbers: Tensor) -> Tensor:
    """Numbers on the sampled tokens, garbage on all others."""
    grid = torch.full(batch.tokens.shape, NAN, dtype=torch.float64)
    grid[batch.action_mask] = numbers
    return grid


@pytest.mark.parametrize("least", [pytest.param(0, id="compiled"), pytest.param(2**40, id="by steps")])
@FEWER
@given(
    rows=random_rows(),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.5, 1.0]),
    width=st.integers(1, 9),
)
def test_it_is_every_token_a_step_in_whatever_rows(
    least: int, rows: list[Rollout], gamma: float, lam: float, width: int
) -> None:
    batch = collate(rows)
    count = int(batch.action_mask.sum())
    rewards, values = torch.randn(2, count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    steps = splitters.every_token(batch)
    grids = steps.first(laid(batch, rewards)), steps.first(laid(batch, values))
    expected = steps.to_tokens(credit.gae(*grids, gamma=gamma, lam=lam))[batch.action_mask]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "LEAST", least)
        for other in (batch, recut(batch, width)):
            found = token_gae(other, laid(other, rewards), laid(other, values), gamma=gamma, lam=lam)
            torch.testing.assert_close(found[other.action_mask], expected, rtol=0, atol=1e-12)
            assert found[~other.action_mask].eq(0).all()


def test_a_tool_call_longer_than_a_piece_of_the_compiled_loop_joins_what_lies_round_it() -> None:
    loops = pytest.importorskip("apportion.compiled.loops")
    gap = 2 * loops.PIECE
    mask = torch.arange(9 * loops.PIECE).div(gap, rounding_mode="floor") % 2 == 0
    mask[-5:] = torch.tensor([False, True, False, True, False])
    batch = collate([Rollout([1] * len(mask), mask.tolist(), "g"), Rollout([1], [True], "g")])
    rewards, values = torch.randn(
        2, int(mask.sum()) + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(7)
    )

    found = token_gae(batch, laid(batch, rewards), laid(batch, values), gamma=0.9999, lam=0.9999)

    alone = credit.gae(rewards[None, :-1], values[None, :-1], gamma=0.9999, lam=0.9999)
    torch.testing.assert_close(found[0][mask], alone[0], rtol=0, atol=1e-9)
    assert float(found[1, 0]) == pytest.approx(float(rewards[-1] - values[-1]))
    assert found[~batch.action_mask].eq(0).all()
