"""Losses of tokens, and the weights that make a loss of a batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import losses
from apportion.rollouts import Rollout, collate
from batches import FEWER, INF, NAN, batch_of, random_rows, recut

LOG2 = math.log(2)
REDUCTIONS = {**losses.REDUCTIONS, "fixed divisor": losses.fixed_divisor(8.0)}
EVERY_REDUCTION = [pytest.param(reduction, id=name) for name, reduction in REDUCTIONS.items()]


def grid(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def gradient(loss: Callable[[Tensor], Tensor], logprobs: Tensor) -> list[float]:
    """The derivative of the summed loss by each log-probability of a one-row grid."""
    leaf = logprobs.clone().requires_grad_()
    loss(leaf).sum().backward()
    assert leaf.grad is not None
    numbers: list[float] = leaf.grad[0].tolist()
    return numbers


ON = torch.tensor([[True, True]])


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


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-4, 4)), min_size=1, max_size=6))
def test_on_policy_the_gradient_of_ppo_is_the_policy_gradient(tokens: list[tuple[float, float]]) -> None:
    logprobs, advantages = grid(*(t[0] for t in tokens)), grid(*(t[1] for t in tokens))
    mask = torch.ones_like(logprobs).bool()
    ppo = partial(losses.ppo_clip, old_logprobs=logprobs, advantages=advantages, mask=mask)

    plain = gradient(partial(losses.policy_gradient, advantages=advantages, mask=mask), logprobs)
    assert gradient(ppo, logprobs) == pytest.approx(plain, abs=1e-12)


def test_the_ratio_is_one_where_it_does_not_count() -> None:
    found = losses.probability_ratio(grid(LOG2 - 1, NAN, 0), grid(-1, -1, -INF), torch.tensor([[True, False, False]]))

    assert found[0].tolist() == pytest.approx([2, 1, 1], abs=1e-12)


def test_ppo_of_two_tokens_next_to_one_that_overflows() -> None:
    mask = torch.tensor([[True, True, False]])
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


TOKEN_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "policy gradient": lambda mask, old, advantages, new: losses.policy_gradient(new, advantages, mask),
    "ppo": lambda mask, old, advantages, new: losses.ppo_clip(new, old, advantages, mask),
    "k1": lambda mask, old, advantages, new: losses.kl_k1(new, old, mask),
    "k2": lambda mask, old, advantages, new: losses.kl_k2(new, old, mask),
    "k3": lambda mask, old, advantages, new: losses.kl_k3(new, old, mask),
    "entropy": lambda mask, old, advantages, new: losses.entropy_bonus(new, mask),
}


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in TOKEN_LOSSES])
@pytest.mark.parametrize("garbage", [pytest.param(x, id=str(x)) for x in (NAN, INF, -INF, -200.0, 1e9)])
@FEWER
@given(marks=st.lists(st.booleans(), min_size=4, max_size=4))
def test_behind_the_mask_there_is_neither_loss_nor_gradient(name: str, garbage: float, marks: list[bool]) -> None:
    mask = torch.tensor([marks])
    columns = grid(-1, -2, -0.5, -3), grid(-1.125, -1.875, -0.5, -2), grid(1, -1, 0.5, 2)

    def evaluate(new: Tensor, old: Tensor, advantages: Tensor) -> tuple[Tensor, list[float]]:
        loss = partial(TOKEN_LOSSES[name], mask, old, advantages)
        return loss(new), gradient(loss, new)

    clean, clean_gradient = evaluate(*columns)
    value, slope = evaluate(*(torch.where(mask, column, garbage) for column in columns))

    assert torch.equal(value, clean)
    assert slope == clean_gradient
    assert value[~mask].eq(0).all()
    assert all(s == 0 for s, marked in zip(slope, marks, strict=True) if not marked)
    assert all(s != 0 for s, marked in zip(slope[:2], marks, strict=False) if marked)


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        # d = 0.5, -1: k3 = exp(-d) - 1 + d, its slope 1 - exp(-d)
        pytest.param("k1", [0.5, -1.0], [1, 1], id="k1"),
        pytest.param("k2", [0.125, 0.5], [0.5, -1.0], id="k2"),
        pytest.param("k3", [math.exp(-0.5) - 0.5, math.e - 2], [1 - math.exp(-0.5), 1 - math.e], id="k3"),
    ],
)
def test_kl_estimates_of_two_tokens_by_hand(name: str, values: list[float], slopes: list[float]) -> None:
    estimate = losses.KL_BY_NAME[name]
    logprobs, reference = grid(-1, -2), grid(-1.5, -1)

    assert estimate(logprobs, reference, ON)[0].tolist() == pytest.approx(values, abs=1e-12)
    assert gradient(lambda new: estimate(new, reference, ON), logprobs) == pytest.approx(slopes, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        pytest.param("k1", [0.2, -0.5, 0], [1, 1, 0], id="k1"),
        pytest.param("k2", [0.02, 0.125, 0], [0.2, -0.5, 0], id="k2"),
        pytest.param("k3", [0.018731, 0.148721, 0], [0.181269, -0.648721, 0], id="k3"),
    ],
)
def test_kl_estimates_next_to_a_token_that_does_not_count(name: str, values: list[float], slopes: list[float]) -> None:
    estimate, mask = losses.KL_BY_NAME[name], torch.tensor([[True, True, False]])
    logprobs, reference = grid(-1.0, -2.0, -9.0), grid(-1.2, -1.5, -1.0)

    assert estimate(logprobs, reference, mask)[0].tolist() == pytest.approx(values, abs=1e-6)
    assert gradient(lambda new: estimate(new, reference, mask), logprobs) == pytest.approx(slopes, abs=1e-6)


def two_actions(theta: float, requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probabilities [1, 2] of a policy whose first action has this logit, and the logit."""
    logit = torch.tensor(theta, dtype=torch.float64, requires_grad=requires_grad)
    return torch.stack([logit, torch.zeros_like(logit)]).log_softmax(0).unsqueeze(0), logit


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_kl_estimates_over_two_actions_have_these_means_and_these_gradients(theta: float, other: float) -> None:
    reference, _ = two_actions(other)
    exact, exact_logit = two_actions(theta, requires_grad=True)
    reverse = (exact.exp() * (exact - reference)).sum()
    (reverse_slope,) = torch.autograd.grad(reverse, exact_logit, retain_graph=True)
    (forward_slope,) = torch.autograd.grad((reference.exp() * (reference - exact)).sum(), exact_logit)

    def sampled(name: str) -> tuple[float, float]:
        logprobs, logit = two_actions(theta, requires_grad=True)
        mean = (logprobs.exp().detach() * losses.KL_BY_NAME[name](logprobs, reference, ON)).sum()
        (slope,) = torch.autograd.grad(mean, logit)
        return mean.item(), slope.item()

    assert sampled("k1") == pytest.approx((reverse.item(), 0), abs=1e-9)
    assert sampled("k2")[1] == pytest.approx(reverse_slope.item(), abs=1e-9)
    assert sampled("k3") == pytest.approx((reverse.item(), forward_slope.item()), abs=1e-9)


def test_kl_of_four_fifths_against_a_half_in_numbers() -> None:
    logprobs, logit = two_actions(math.log(4), requires_grad=True)
    reference = torch.full((1, 2), -LOG2, dtype=torch.float64)
    found = {}
    for name, estimate in losses.KL_BY_NAME.items():
        mean = (logprobs.exp().detach() * estimate(logprobs, reference, ON)).sum()
        found[name] = mean.item(), torch.autograd.grad(mean, logit, retain_graph=True)[0].item()

    assert found["k1"] == pytest.approx((0.192745, 0), abs=1e-6)
    assert found["k2"][1] == pytest.approx(0.221807, abs=1e-6)
    assert found["k3"] == pytest.approx((0.192745, 0.3), abs=1e-6)


def test_more_entropy_is_less_loss() -> None:
    assert losses.entropy_bonus(grid(0.5, 2), torch.tensor([[True, False]])).tolist() == [[-0.5, 0]]


SHORT_AND_LONG = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()
SHORT_AND_LONG_OF = torch.tensor([[0, 0, -1, -1], [1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("reduction", "short", "long", "loss"),
    [
        pytest.param(losses.token_mean, 1 / 6, 1 / 6, 10 / 6, id="token mean"),
        pytest.param(losses.sequence_mean, 1 / 4, 1 / 8, 2.0, id="sequence mean"),
        pytest.param(losses.sequence_sum, 1 / 2, 1 / 2, 5.0, id="sequence sum"),
        pytest.param(losses.fixed_divisor(16.0), 1 / 16, 1 / 16, 0.625, id="fixed divisor"),
    ],
)
def test_reductions_weigh_short_and_long_answers_by_hand(
    reduction: losses.Reduction, short: float, long: float, loss: float
) -> None:
    token_loss = torch.tensor([[2.0, 4, 50, NAN], [1, 1, 1, 1]])

    weights = reduction(SHORT_AND_LONG, SHORT_AND_LONG_OF)

    assert weights.tolist() == torch.tensor([[short, short, 0, 0], [long] * 4]).tolist()
    assert losses.total(token_loss, weights).item() == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("reduction", EVERY_REDUCTION)
def test_a_rollout_without_a_token_that_counts_is_not_counted(reduction: losses.Reduction) -> None:
    more = torch.cat([torch.zeros(1, 4).bool(), SHORT_AND_LONG, torch.zeros(1, 4).bool()])
    later = torch.where(SHORT_AND_LONG_OF >= 0, SHORT_AND_LONG_OF + 1, -1)
    more_of = torch.cat([torch.zeros(1, 4).long(), later, torch.full((1, 4), 3)])

    assert torch.equal(reduction(more, more_of)[1:3], reduction(SHORT_AND_LONG, SHORT_AND_LONG_OF))
    assert reduction(more, more_of)[[0, 3]].eq(0).all()


@pytest.mark.parametrize("reduction", EVERY_REDUCTION)
def test_a_batch_in_which_nothing_counts_weighs_nothing(reduction: losses.Reduction) -> None:
    weights = reduction(torch.zeros(2, 3).bool(), torch.tensor([[0, 0, 0], [1, -1, -1]]))

    assert weights.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert losses.total(torch.full((2, 3), NAN), weights).item() == 0


@pytest.mark.parametrize("reduction", EVERY_REDUCTION)
@FEWER
@given(rows=random_rows(), width=st.integers(1, 7))
def test_a_token_weighs_the_same_in_any_layout(reduction: losses.Reduction, rows: list[Rollout], width: int) -> None:
    batch = collate(rows)
    cut = recut(batch, width)

    padded = reduction(batch.action_mask, batch.rollout_of)
    assert torch.equal(padded[batch.valid_mask], reduction(cut.action_mask, cut.rollout_of)[cut.valid_mask])
    assert padded[~batch.action_mask].eq(0).all()


@given(random_rows())
def test_the_weights_of_a_mean_sum_to_one(rows: list[Rollout]) -> None:
    batch = collate(rows)
    acting = int((batch.action_counts > 0).sum())
    tokens, answers, whole = (
        reduction(batch.action_mask, batch.rollout_of).double().sum().item()
        for reduction in (losses.token_mean, losses.sequence_mean, losses.sequence_sum)
    )

    assert tokens == pytest.approx(min(acting, 1), rel=1e-6)
    assert answers == pytest.approx(min(acting, 1), rel=1e-6)
    assert whole == pytest.approx(float(batch.action_counts.sum()) / max(1, acting), rel=1e-6)


def test_where_all_answers_are_as_long_the_reductions_differ_by_a_constant() -> None:
    batch = batch_of("paa", "aat", "apa", "taa")
    token_mean = losses.token_mean(batch.action_mask, batch.rollout_of)

    assert torch.equal(losses.sequence_mean(batch.action_mask, batch.rollout_of), token_mean)
    assert torch.equal(losses.sequence_sum(batch.action_mask, batch.rollout_of), 2 * token_mean)
    assert torch.equal(losses.fixed_divisor(8.0)(batch.action_mask, batch.rollout_of), token_mean)


def test_a_weight_of_nought_silences_whatever_it_weighs() -> None:
    token_loss = torch.tensor([[2.0, NAN, INF]], requires_grad=True)

    loss = losses.total(token_loss, torch.tensor([[0.5, 0, 0]]))
    loss.backward()

    assert loss.item() == 1
    assert token_loss.grad is not None
    assert token_loss.grad.tolist() == [[0.5, 0, 0]]


@pytest.mark.parametrize("reduction", EVERY_REDUCTION)
@FEWER
@given(rows=random_rows(), data=st.data())
def test_any_cut_into_micro_batches_adds_up_to_the_same_loss_and_gradient(
    reduction: losses.Reduction, rows: list[Rollout], data: st.DataObject
) -> None:
    batch = collate(rows)
    shape, count = batch.tokens.shape, batch.tokens.numel()
    old = -(torch.arange(count, dtype=torch.float64).view(shape) % 3) - 0.5
    advantages = (torch.arange(count, dtype=torch.float64).view(shape) % 5) - 2
    start = torch.where(batch.action_mask, old + (torch.arange(count).view(shape) % 4 - 1.5) / 8, NAN)
    # a selection over the whole batch, made once: only the better half counts
    chosen = batch.action_mask & (advantages >= advantages[batch.action_mask].mean())
    weights = reduction(chosen, batch.rollout_of)

    def loss_and_gradient(pieces: list[slice]) -> tuple[float, Tensor]:
        logprobs, loss = start.clone().requires_grad_(), 0.0
        for piece in pieces:
            token_loss = losses.ppo_clip(logprobs[piece], old[piece], advantages[piece], chosen[piece])
            part = losses.total(token_loss, weights[piece])
            part.backward()
            loss += part.item()
        assert logprobs.grad is not None
        return loss, logprobs.grad

    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=3))})
    value, slope = loss_and_gradient([slice(0, len(rows))])
    split_value, split_slope = loss_and_gradient([slice(a, b) for a, b in itertools.pairwise(cuts)])

    assert split_value == pytest.approx(value, rel=1e-12, abs=1e-12)
    torch.testing.assert_close(split_slope, slope, rtol=1e-12, atol=1e-12)
    assert slope.isfinite().all()


def test_a_token_mean_over_micro_batches_is_not_the_mean_of_their_means() -> None:
    token_loss = torch.tensor([[2.0, 4, 50, 50], [1, 1, 1, 1]])
    weights = losses.token_mean(SHORT_AND_LONG, SHORT_AND_LONG_OF)

    parts = [losses.total(token_loss[n : n + 1], weights[n : n + 1]).item() for n in (0, 1)]

    assert parts == pytest.approx([1.0, 2 / 3], rel=1e-6)
    assert sum(parts) == pytest.approx(losses.total(token_loss, weights).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("advantage", "loss", "gradient"),
    [
        pytest.param(0.0, 0.0, 0.0, id="no advantage"),
        pytest.param(1.0, -1.2, 0.0, id="clipped"),
        pytest.param(-1.0, math.exp(20), 0.0, id="kept within 20 nats"),
    ],
)
def test_a_ratio_out_of_all_bounds_gives_a_number_and_no_gradient(
    advantage: float, loss: float, gradient: float
) -> None:
    logprobs = torch.tensor([[-0.1]], requires_grad=True)
    found = losses.ppo_clip(
        logprobs, torch.tensor([[-200.0]]), torch.tensor([[advantage]]), torch.ones(1, 1, dtype=torch.bool)
    )
    found.sum().backward()

    assert found.item() == pytest.approx(loss, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == gradient


def test_k3_of_a_token_that_the_policy_all_but_gave_up_is_a_number() -> None:
    logprobs = torch.tensor([[-100.0]], requires_grad=True)
    found = losses.kl_k3(logprobs, torch.tensor([[-0.1]]), torch.ones(1, 1, dtype=torch.bool))
    found.sum().backward()

    assert found.item() == pytest.approx(math.exp(20) - 21, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == 0
