"""Losses of the policy."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion import losses
from apportion.rollouts import Rollout, collate
from batches import FEWER, INF, NAN, random_rows, recut
from grids import ON, gradient, grid, marks

TOKENS = st.lists(st.tuples(st.floats(-20, 0), st.floats(-1, 1), st.floats(-4, 4)), min_size=1, max_size=6)
"""Of each token: log-probability, old less new, advantage."""


def test_the_policy_gradient_of_two_tokens_by_hand() -> None:
    loss = partial(losses.policy_gradient, advantages=grid(2, -0.5), mask=ON)

    assert loss(grid(-1, -4)).tolist() == [[2, -2]]
    assert gradient(loss, grid(-1, -4)) == [-2, 0.5]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        pytest.param(1.0, 2.0, -2.0, -2.0, id="on policy, good"),
        pytest.param(1.0, -2.0, 2.0, 2.0, id="on policy, bad"),
        pytest.param(2.0, 1.0, -1.5, 0.0, id="good and already likelier: clipped"),
        pytest.param(2.0, -1.0, 2.0, 2.0, id="bad but likelier: pulled back"),
        pytest.param(0.5, 1.0, -0.5, -0.5, id="good but less likely: pulled up"),
        pytest.param(0.5, -1.0, 0.75, 0.0, id="bad and already less likely: clipped"),
        pytest.param(1.25, 1.0, -1.25, -1.25, id="inside the upper bound"),
        pytest.param(0.875, -1.0, 0.875, 0.875, id="inside the lower bound"),
    ],
)
def test_ppo_with_a_bound_for_each_side_by_hand(ratio: float, advantage: float, loss: float, slope: float) -> None:
    old = grid(-3, -3)
    clipped = partial(
        losses.ppo_clip, old_logprobs=old, advantages=grid(advantage, 0), mask=ON, clip_low=0.25, clip_high=0.5
    )
    logprobs = old + grid(math.log(ratio), 0)

    assert clipped(logprobs)[0].tolist() == pytest.approx([loss, 0], abs=1e-12)
    assert gradient(clipped, logprobs) == pytest.approx([slope, 0], abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [pytest.param(1.5, 1.0, -1.2, id="upper"), pytest.param(0.5, -1.0, 0.8, id="lower")],
)
def test_ppo_clips_at_a_fifth_unless_told_otherwise(ratio: float, advantage: float, loss: float) -> None:
    found = losses.ppo_clip(grid(math.log(ratio) - 1, -1), grid(-1, -1), grid(advantage, 0), ON)

    assert found[0].tolist() == pytest.approx([loss, 0], abs=1e-12)


@given(TOKENS)
def test_on_policy_every_clipped_loss_has_the_gradient_of_the_policy_gradient(
    tokens: list[tuple[float, float, float]],
) -> None:
    logprobs, advantages = grid(*(t[0] for t in tokens)), grid(*(t[2] for t in tokens))
    mask, ones = torch.ones_like(logprobs).bool(), torch.ones_like(logprobs)
    masked = {"advantages": advantages, "mask": mask}

    plain = gradient(partial(losses.policy_gradient, **masked), logprobs)
    for loss in (
        partial(losses.ppo_clip, old_logprobs=logprobs, **masked),
        partial(losses.cispo, old_logprobs=logprobs, **masked),
        partial(losses.gspo_token, sequence_ratios=ones, **masked),
    ):
        assert gradient(loss, logprobs) == pytest.approx(plain, abs=1e-12)


def test_ppo_of_two_tokens_next_to_one_that_overflows() -> None:
    mask = marks(1, 1, 0)
    weights = losses.token_mean(mask, torch.zeros(1, 3, dtype=torch.int64))
    for old, advantage in ((-203.0, 5.0), (-INF, INF), (NAN, NAN)):
        logprobs = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
        old_logprobs, advantages = torch.tensor([[-1.1, -1.9, old]]), torch.tensor([[1.0, -1.0, advantage]])

        loss = losses.total(losses.ppo_clip(logprobs, old_logprobs, advantages, mask), weights)
        loss.backward()

        assert loss.item() == pytest.approx(-0.100167, abs=1e-6)
        assert logprobs.grad is not None
        assert logprobs.grad[0].tolist() == pytest.approx([-0.552585, 0.452419, 0], abs=1e-6)
        assert logprobs.grad[0, 2].item() == 0


@pytest.mark.parametrize(
    ("advantage", "loss", "slope"),
    [
        pytest.param(0.0, 0.0, 0.0, id="no advantage"),
        pytest.param(1.0, -1.2, 0.0, id="clipped"),
        pytest.param(-1.0, math.exp(20), 0.0, id="kept within 20 nats"),
    ],
)
def test_a_ratio_out_of_all_bounds_gives_a_number_and_no_gradient(advantage: float, loss: float, slope: float) -> None:
    logprobs = torch.tensor([[-0.1]], requires_grad=True)
    found = losses.ppo_clip(logprobs, torch.tensor([[-200.0]]), torch.tensor([[advantage]]), marks(1))
    found.sum().backward()

    assert found.item() == pytest.approx(loss, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == slope


# --- GSPO, token form


@pytest.mark.parametrize(
    ("ratio", "loss", "slopes"),
    [
        pytest.param(1.25, [-2.5, 1.25], [-2.5, 1.25], id="inside: the ratio of the answer times its own advantage"),
        pytest.param(2.0, [-3.0, 2.0], [0, 2.0], id="likelier: the good token is clipped, the bad one pulled back"),
        pytest.param(0.5, [-1.0, 0.75], [-1.0, 0], id="less likely: the other way round"),
    ],
)
def test_gspo_of_a_good_and_a_bad_token_of_one_answer_by_hand(
    ratio: float, loss: list[float], slopes: list[float]
) -> None:
    ratios = torch.full_like(grid(0, 0), ratio)
    clipped = partial(
        losses.gspo_token, sequence_ratios=ratios, advantages=grid(2, -1), mask=ON, clip_low=0.25, clip_high=0.5
    )

    assert clipped(grid(-3, -0.5)).tolist() == [loss]
    assert gradient(clipped, grid(-3, -0.5)) == slopes


def test_gspo_clips_at_the_bounds_of_its_paper_unless_told_otherwise() -> None:
    def slopes(ratio: float) -> list[float]:
        ratios = torch.full_like(grid(0, 0), ratio)
        return gradient(
            partial(losses.gspo_token, sequence_ratios=ratios, advantages=grid(1, -1), mask=ON), grid(-1, -1)
        )

    assert slopes(1 + 3.9e-4)[0] != 0
    assert slopes(1 + 4.1e-4)[0] == 0
    assert slopes(1 - 2.9e-4)[1] != 0
    assert slopes(1 - 3.1e-4)[1] == 0


@FEWER
@given(rows=random_rows(), data=st.data())
def test_gspo_gives_every_token_a_gradient_in_proportion_to_its_own_advantage(
    rows: list[Rollout], data: st.DataObject
) -> None:
    batch = recut(collate(rows), data.draw(st.integers(1, 7)))
    shape, count = batch.tokens.shape, batch.tokens.numel()
    logprobs = -(torch.arange(count, dtype=torch.float64).view(shape) % 3) - 0.5
    old = logprobs - (torch.arange(count).view(shape) % 4 - 1.5) / 1024
    advantages = (torch.arange(count, dtype=torch.float64).view(shape) % 5) - 2
    ratios = losses.sequence_ratio(logprobs, old, batch.action_mask, batch.rollout_of)
    leaf = logprobs.clone().requires_grad_()

    losses.gspo_token(leaf, ratios, advantages, batch.action_mask, clip_low=0.5, clip_high=0.5).sum().backward()

    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, torch.where(batch.action_mask, -ratios * advantages, 0))


def test_one_ratio_an_answer_without_the_token_form_smears_credit_to_its_mean() -> None:
    logprobs, old, advantages = grid(-1, -2, -3), grid(-1.25, -2, -2.875), grid(3, -1, 1)
    whole = torch.zeros(1, 3, dtype=torch.int64)

    def collapsed(new: torch.Tensor) -> torch.Tensor:
        return -losses.sequence_ratio(new, old, marks(1, 1, 1), whole) * advantages

    def token_form(new: torch.Tensor) -> torch.Tensor:
        ratios = losses.sequence_ratio(new, old, marks(1, 1, 1), whole)
        return losses.gspo_token(new, ratios, advantages, marks(1, 1, 1), clip_low=0.5, clip_high=0.5)

    s = math.exp(0.125 / 3)
    assert gradient(collapsed, logprobs) == pytest.approx([-s, -s, -s], rel=1e-12)
    assert gradient(token_form, logprobs) == pytest.approx([-3 * s, s, -s], rel=1e-12)
    assert torch.allclose(collapsed(logprobs), token_form(logprobs), rtol=1e-12)


@given(TOKENS)
def test_gspo_with_the_ratio_of_each_token_is_ppo(tokens: list[tuple[float, float, float]]) -> None:
    logprobs, advantages = grid(*(t[0] for t in tokens)), grid(*(t[2] for t in tokens))
    old = logprobs + grid(*(t[1] for t in tokens))
    mask = torch.ones_like(logprobs).bool()
    ppo = partial(losses.ppo_clip, old_logprobs=old, advantages=advantages, mask=mask)

    def gspo(new: torch.Tensor) -> torch.Tensor:
        ratios = losses.probability_ratio(new, old, mask)
        return losses.gspo_token(new, ratios, advantages, mask, clip_low=0.2, clip_high=0.2)

    assert torch.allclose(gspo(logprobs), ppo(logprobs), rtol=1e-12, atol=1e-12)
    assert gradient(gspo, logprobs) == pytest.approx(gradient(ppo, logprobs), rel=1e-12, abs=1e-12)


# --- CISPO


@pytest.mark.parametrize(
    ("ratio", "weight"),
    [
        pytest.param(1.0, 1.0, id="on policy"),
        pytest.param(2.0, 1.5, id="above: clipped"),
        pytest.param(0.5, 0.75, id="below: clipped"),
        pytest.param(1.25, 1.25, id="inside"),
    ],
)
def test_cispo_clips_the_weight_of_a_token_and_never_its_gradient(ratio: float, weight: float) -> None:
    old = grid(-3, -1)
    logprobs = old + grid(math.log(ratio), math.log(ratio))
    loss = partial(losses.cispo, old_logprobs=old, advantages=grid(2, -1), mask=ON, clip_low=0.25, clip_high=0.5)

    assert gradient(loss, logprobs) == pytest.approx([-2 * weight, weight], rel=1e-12)
    expected = [-2 * weight * logprobs[0, 0].item(), weight * logprobs[0, 1].item()]
    assert loss(logprobs)[0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "weight"),
    [pytest.param(4.0, 1.2, id="above"), pytest.param(2**-9, 2**-9, id="no lower bound")],
)
def test_cispo_has_an_upper_bound_only_unless_told_otherwise(ratio: float, weight: float) -> None:
    loss = partial(losses.cispo, old_logprobs=grid(-8, -8), advantages=grid(1, -1), mask=ON)

    found = gradient(loss, grid(-8, -8) + math.log(ratio))

    assert found == pytest.approx([-weight, weight], rel=1e-12)


@given(TOKENS)
def test_inside_the_bounds_the_gradient_of_cispo_is_that_of_ppo(tokens: list[tuple[float, float, float]]) -> None:
    logprobs, advantages = grid(*(t[0] for t in tokens)), grid(*(t[2] for t in tokens))
    bounded = {
        "old_logprobs": logprobs + grid(*(t[1] for t in tokens)),
        "advantages": advantages,
        "mask": torch.ones_like(logprobs).bool(),
        "clip_low": 0.75,
        "clip_high": 2.0,
    }

    cispo, ppo = (gradient(partial(loss, **bounded), logprobs) for loss in (losses.cispo, losses.ppo_clip))

    assert cispo == pytest.approx(ppo, rel=1e-12, abs=1e-12)
