"""What every loss promises of tokens that do not count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import losses
from batches import FEWER, INF, NAN
from grids import gradient, grid

ONE_ROLLOUT, TWO_ROLLOUTS = torch.tensor([[0, 0, 0, 0]]), torch.tensor([[0, 0, 1, 1]])


def gspo(mask: Tensor, old: Tensor, advantages: Tensor, new: Tensor, rollout_of: Tensor = ONE_ROLLOUT) -> Tensor:
    ratios = losses.sequence_ratio(new, old, mask, rollout_of)
    return losses.gspo_token(new, ratios, advantages, mask, clip_low=0.75, clip_high=0.75)


def collapsed(mask: Tensor, old: Tensor, advantages: Tensor, new: Tensor) -> Tensor:
    return torch.where(mask, losses.product_ratio(new, old, mask, ONE_ROLLOUT), 0)


TOKEN_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "policy gradient": lambda mask, old, advantages, new: losses.policy_gradient(new, advantages, mask),
    "ppo": lambda mask, old, advantages, new: losses.ppo_clip(new, old, advantages, mask),
    "gspo": gspo,
    "gspo, packed": partial(gspo, rollout_of=TWO_ROLLOUTS),
    "gspo of given ratios": lambda mask, old, advantages, new: losses.gspo_token(new, advantages.exp(), old, mask),
    "product ratio": collapsed,
    "cispo": lambda mask, old, advantages, new: losses.cispo(new, old, advantages, mask),
    "k1": lambda mask, old, advantages, new: losses.kl_k1(new, old, mask),
    "k2": lambda mask, old, advantages, new: losses.kl_k2(new, old, mask),
    "k3": lambda mask, old, advantages, new: losses.kl_k3(new, old, mask),
    "entropy": lambda mask, old, advantages, new: losses.entropy_bonus(new, mask),
    "value": lambda mask, old, advantages, new: losses.value_loss(new, advantages, mask),
    "value, clipped": lambda mask, old, advantages, new: losses.value_loss_clipped(new, old, advantages, mask),
}
EVERY_LOSS = [pytest.param(loss, id=name) for name, loss in TOKEN_LOSSES.items()]
NEW, OLD, ADVANTAGES = grid(-1, -2, -0.5, -3), grid(-1.125, -1.875, -0.5, -2), grid(1, -1, 0.5, 2)


@pytest.mark.parametrize("token_loss", EVERY_LOSS)
@pytest.mark.parametrize("garbage", [pytest.param(x, id=str(x)) for x in (NAN, INF, -INF, -200.0, 1e9)])
@FEWER
@given(flags=st.lists(st.booleans(), min_size=4, max_size=4))
def test_behind_the_mask_there_is_neither_loss_nor_gradient(
    token_loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], garbage: float, flags: list[bool]
) -> None:
    mask = torch.tensor([flags])

    def evaluate(new: Tensor, old: Tensor, advantages: Tensor) -> tuple[Tensor, list[float]]:
        loss = partial(token_loss, mask, old, advantages)
        return loss(new), gradient(loss, new)

    clean, clean_gradient = evaluate(NEW, OLD, ADVANTAGES)
    value, slope = evaluate(*(torch.where(mask, column, garbage) for column in (NEW, OLD, ADVANTAGES)))

    assert torch.equal(value, clean)
    assert slope == clean_gradient
    assert value[~mask].eq(0).all()
    assert all(s == 0 for s, flag in zip(slope, flags, strict=True) if not flag)


@pytest.mark.parametrize("token_loss", [loss for loss in EVERY_LOSS if loss.id != "gspo of given ratios"])
def test_where_a_token_counts_there_is_a_gradient(
    token_loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> None:
    mask = torch.tensor([[True, True, False, False]])

    assert all(s != 0 for s in gradient(partial(token_loss, mask, OLD, ADVANTAGES), NEW)[:2])


@pytest.mark.parametrize("token_loss", EVERY_LOSS)
@pytest.mark.parametrize("reduction", [pytest.param(r, id=name) for name, r in losses.REDUCTIONS.items()])
def test_a_micro_batch_in_which_nothing_counts_has_a_loss_and_a_gradient_of_nought(
    token_loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], reduction: losses.Reduction
) -> None:
    mask = torch.zeros(1, 4, dtype=torch.bool)
    garbage = grid(NAN, INF, -INF, -200)

    def loss(new: Tensor) -> Tensor:
        return losses.total(token_loss(mask, garbage, garbage, new), reduction(mask, ONE_ROLLOUT))

    assert loss(garbage).item() == 0
    assert gradient(loss, garbage) == [0, 0, 0, 0]


@pytest.mark.parametrize("token_loss", EVERY_LOSS)
@pytest.mark.parametrize("dtype", [pytest.param(dtype, id=str(dtype)) for dtype in (torch.float32, torch.float64)])
def test_a_loss_is_in_the_precision_of_what_it_is_given(
    token_loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    columns = (column.to(dtype) for column in (OLD, ADVANTAGES, NEW))

    assert token_loss(torch.ones(1, 4, dtype=torch.bool), *columns).dtype == dtype
