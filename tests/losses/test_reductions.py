"""The weights that make a loss of a batch."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import losses
from apportion.across import Across
from apportion.rollouts import Rollout, collate
from batches import FEWER, INF, NAN, batch_of, random_rows, recut

REDUCTIONS = {**losses.REDUCTIONS, "fixed divisor": losses.fixed_divisor(8.0)}
EVERY_REDUCTION = [pytest.param(reduction, id=name) for name, reduction in REDUCTIONS.items()]


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


def test_gradients_averaged_over_two_processes_weigh_every_token_alike() -> None:
    # two tokens on one process, four on the other; each knows of six in all
    masks = torch.ones(1, 2).bool(), torch.ones(1, 4).bool()
    token_loss = torch.tensor([[2.0, 4.0]]), torch.ones(1, 4)
    both = Across(sum=lambda count: torch.tensor(6), largest=lambda entries: entries, size=2)

    found = [
        losses.total(loss, losses.averaged(losses.token_mean(mask, torch.zeros_like(mask).long(), across=both), both))
        for loss, mask in zip(token_loss, masks, strict=True)
    ]

    assert [loss.item() for loss in found] == pytest.approx([2.0, 4 / 3])
    assert torch.stack(found).mean().item() == pytest.approx(10 / 6)


@pytest.mark.parametrize("reduction", EVERY_REDUCTION)
def test_a_process_without_any_row_has_no_weights(reduction: losses.Reduction) -> None:
    assert reduction(torch.zeros(0, 3).bool(), torch.zeros(0, 3).long()).shape == (0, 3)
