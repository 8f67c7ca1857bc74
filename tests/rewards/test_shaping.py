"""Rewards scaled, clipped, gathered in blocks, kept at key steps only; and terms for every token."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import credit, losses
from apportion.errors import InputError
from apportion.rewards import shaping
from apportion.rewards.mixing import at_end
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters, spread
from apportion.steps.grid import number_steps
from batches import FEWER, INF, NAN, SIXTEENTHS, batch_of, poisoned, random_rows, row

Grid = tuple[Tensor, Tensor]


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Rewards [N, K] in float64 with exact sums, garbage behind the mask, and the mask."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, columns), min_size=rows, max_size=rows))
    numbers = draw(st.lists(SIXTEENTHS, min_size=rows * columns, max_size=rows * columns))
    mask = torch.arange(columns) < torch.tensor(counts).unsqueeze(1)
    garbage = draw(st.sampled_from([NAN, INF, 1e9]))
    return torch.where(mask, torch.tensor(numbers, dtype=torch.float64).view(rows, columns), garbage), mask


REWARDS = torch.tensor([[-3.0, 0.5, 2.0], [1.0, NAN, INF]])
MASK = torch.tensor([[True, True, True], [True, False, False]])
ON_STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "scale": partial(shaping.scale, factor=0.25),
    "clip": shaping.clip,
    "clip total": lambda rewards, mask: sum_of(shaping.clip_total({"outcome": rewards, "process": rewards}, mask)),
    "clipped": lambda rewards, mask: shaping.clip_total({"outcome": rewards}, mask)["clipped"],
    "kept": lambda rewards, mask: shaping.key_steps_only(rewards, mask, torch.ones_like(mask)).kept,
    "dropped": lambda rewards, mask: shaping.key_steps_only(rewards, mask, torch.zeros_like(mask)).dropped,
}
ON_TOKENS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "policy": lambda tokens, mask: shaping.kl_penalty(tokens, torch.zeros_like(tokens), mask, coef=0.5),
    "reference": lambda tokens, mask: shaping.kl_penalty(torch.zeros_like(tokens), tokens, mask, coef=0.5),
    "entropy": partial(shaping.entropy_reward, coef=0.5),
}


def sum_of(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(parts.values())).sum(0)


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in ON_STEPS | ON_TOKENS])
@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
@FEWER
@given(grid=grids(), data=st.data())
def test_each_is_silent_behind_the_mask_keeps_precision_and_looks_at_no_other_rollout(
    name: str, dtype: torch.dtype, grid: Grid, data: st.DataObject
) -> None:
    function = (ON_STEPS | ON_TOKENS)[name]
    rewards, mask = grid[0].to(dtype), grid[1]
    before = rewards.clone()
    found = function(rewards, mask)

    assert found.dtype == dtype
    assert found[~mask].eq(0).all()
    assert torch.equal(function(torch.where(mask, rewards, -7), mask), found)
    turned = torch.tensor(data.draw(st.permutations(range(len(mask)))))
    assert torch.equal(function(rewards[turned], mask[turned]), found[turned])
    assert torch.equal(rewards.nan_to_num(), before.nan_to_num())


def test_scaling_by_hand() -> None:
    assert shaping.scale(REWARDS, MASK, factor=0.25).tolist() == [[-0.75, 0.125, 0.5], [0.25, 0, 0]]


@given(grids(), st.sampled_from([0.25, 0.5, 4.0]))
def test_scaling_by_one_changes_nothing_and_factors_multiply(grid: Grid, factor: float) -> None:
    rewards, mask = grid
    scaled = shaping.scale(rewards, mask, factor=factor)

    assert torch.equal(shaping.scale(rewards, mask, factor=1.0), torch.where(mask, rewards, 0))
    assert torch.equal(shaping.scale(scaled, mask, factor=0.5), shaping.scale(rewards, mask, factor=factor * 0.5))
    assert torch.equal(scaled.sum(1), factor * torch.where(mask, rewards, 0).sum(1))


def test_clipping_by_hand() -> None:
    assert shaping.clip(REWARDS, MASK).tolist() == [[-1, 0.5, 1], [1, 0, 0]]
    assert shaping.clip(REWARDS, MASK, low=-2.5, high=0.25).tolist() == [[-2.5, 0.25, 0.25], [0.25, 0, 0]]
    assert shaping.clip(REWARDS, MASK, low=0.0, high=INF).tolist() == [[0, 0.5, 2], [1, 0, 0]]
    assert shaping.clip(REWARDS, MASK, low=-INF, high=0.0).tolist() == [[-3, 0, 0], [0, 0, 0]]


@given(grids())
def test_clipping_twice_is_clipping_once_and_turns_no_sign(grid: Grid) -> None:
    rewards, mask = grid
    clipped = shaping.clip(rewards, mask)

    assert torch.equal(shaping.clip(clipped, mask), clipped)
    assert torch.equal(clipped.sign(), torch.where(mask, rewards, 0).sign())
    within = mask & (rewards.abs() <= 1)
    assert torch.equal(clipped[within], rewards[within])


def test_what_clipping_the_sum_took_is_a_part_with_a_name() -> None:
    parts = {"outcome": torch.tensor([[0.0, 1.0, NAN]]), "process": torch.tensor([[-3.0, 0.5, NAN]])}

    found = shaping.clip_total(parts, MASK[:1] & torch.tensor([[True, True, False]]))

    assert {name: part.tolist() for name, part in found.items()} == {
        "outcome": [[0, 1, 0]],
        "process": [[-3, 0.5, 0]],
        "clipped": [[2, -0.5, 0]],
    }
    further = shaping.clip_total(found, torch.tensor([[True, True, False]]), low=-0.5, high=0.75)
    assert further["clipped"].tolist() == [[2.5, -0.75, 0]]


@given(grids(), SIXTEENTHS)
def test_parts_of_a_clipped_sum_add_up_to_it(grid: Grid, outcome: float) -> None:
    process, mask = grid
    parts = {"process": process, "outcome": torch.full_like(process, outcome)}
    clipped = shaping.clip_total(parts, mask)

    assert torch.equal(sum_of(clipped), shaping.clip(process + outcome, mask))
    assert torch.equal(clipped["process"], torch.where(mask, process, 0))
    assert torch.equal(shaping.clip_total(clipped, mask)["clipped"], clipped["clipped"])


SCORES = torch.tensor([[9.0, 1, 2, 9, 4, 8, 16, 9], [0.5, 0.25, 9, 9, 9, 9, 9, 9]])
BLOCKS = batch_of("paataaat", "aa")
PLACES = torch.tensor([[0, 1, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]).bool()  # steps 1 2 4 | 8 16 and .5 .25


@pytest.mark.parametrize(
    ("size", "sums", "means"),
    [
        pytest.param(1, [[7, 24], [0.75, 0]], [[7, 24], [0.75, 0]], id="a token a block"),
        pytest.param(
            2, [[3, 28], [0.75, 0]], [[1.5, 22], [0.375, 0]], id="a block over the tool's tokens and two steps"
        ),
        pytest.param(3, [[7, 24], [0.75, 0]], [[7 / 3, 12], [0.375, 0]], id="blocks as long as a step"),
        pytest.param(4, [[0, 31], [0.75, 0]], [[0, 19.75], [0.375, 0]], id="two blocks end in the last step"),
        pytest.param(5, [[0, 31], [0.75, 0]], [[0, 6.2], [0.375, 0]], id="one block"),
    ],
)
def test_blocks_are_paid_at_the_step_in_which_they_end(
    size: int, sums: list[list[float]], means: list[list[float]]
) -> None:
    steps = number_steps(BLOCKS, PLACES)
    scores = SCORES.double()

    assert shaping.block_sums(scores, steps, size=size).tolist() == sums
    assert shaping.block_means(scores, steps, size=size).tolist() == means
    assert shaping.block_sums(SCORES, steps, size=size).dtype == torch.float32


def test_a_block_is_two_hundred_sampled_tokens_unless_told_otherwise() -> None:
    batch = batch_of("a" * 150 + "t" * 60 + "a" * 60)
    steps = splitters.every_token(batch)
    scores = batch.action_mask.double()

    for function, paid in ((shaping.block_sums, [200, 10]), (shaping.block_means, [1, 1])):
        found = function(scores, steps)
        assert found.nonzero()[:, 1].tolist() == [199, 209]
        assert found[0, [199, 209]].tolist() == paid


@given(rows=random_rows(), size=st.integers(1, 7), split=st.sampled_from(list(splitters.BY_NAME.values())))
def test_no_token_score_is_lost_in_a_block(rows: list[Rollout], size: int, split: splitters.Splitter) -> None:
    batch = collate(rows)
    steps = split(batch)
    scores = (batch.rollout_of * 5 + torch.arange(batch.tokens.shape[1])).double() / 16
    sums, means = (function(scores, steps, size=size) for function in (shaping.block_sums, shaping.block_means))
    total = steps.sum(scores).sum(1)

    assert torch.equal(sums.sum(1), total)
    assert sums[~steps.mask].eq(0).all()
    assert torch.equal(shaping.block_sums(scores, steps, size=1), steps.sum(scores))
    assert torch.equal(shaping.block_means(scores, steps, size=1), steps.sum(scores))
    # against plain Python
    for n, place in enumerate(batch.places()):
        sampled = place[batch.action_mask.flatten()[place]]
        blocks = torch.split(scores.flatten()[sampled], size)
        average = sum(float(block.mean()) for block in blocks if len(block))
        assert float(means[n].sum()) == pytest.approx(average, abs=1e-12)
        if len(sampled):
            assert torch.equal(shaping.block_sums(scores, steps, size=99)[n], at_end(total, steps)[n])


@FEWER
@given(rows=random_rows(), size=st.integers(1, 5), extra=st.integers(0, 3))
def test_blocks_do_not_look_at_padding_or_tool_tokens(rows: list[Rollout], size: int, extra: int) -> None:
    batch = collate(rows)
    wider = poisoned(batch, extra)
    scores = torch.where(batch.action_mask, torch.arange(batch.tokens.shape[1]).double(), NAN)
    for function in (shaping.block_sums, shaping.block_means):
        found = function(scores, splitters.lines(batch), size=size)
        padded = torch.nn.functional.pad(scores, (0, extra), value=INF)
        assert torch.equal(function(padded, splitters.lines(wider), size=size), found)
        assert found.isfinite().all()


def test_a_batch_of_no_sampled_token_has_no_block() -> None:
    steps = splitters.lines(batch_of_silence := collate([row("pp", ["a", "b"], outcome=1.0)]))

    for function in (shaping.block_sums, shaping.block_means):
        assert function(torch.full(batch_of_silence.tokens.shape, NAN), steps).tolist() == [[0]]


def test_only_key_steps_keep_their_reward_and_what_was_dropped_is_told() -> None:
    process = torch.tensor([[0.5, 0.25, 1.0], [0.75, NAN, NAN]])
    key = torch.tensor([[False, True, False], [True, True, True]])

    found = shaping.key_steps_only(process, MASK, key)

    assert found.kept.tolist() == [[0, 0.25, 0], [0.75, 0, 0]]
    assert found.dropped.tolist() == [[0.5, 0, 1], [0, 0, 0]]


@given(grids(), st.data())
def test_kept_and_dropped_add_up_to_the_process_reward(grid: Grid, data: st.DataObject) -> None:
    process, mask = grid
    marks = data.draw(st.lists(st.booleans(), min_size=mask.numel(), max_size=mask.numel()))
    found = shaping.key_steps_only(process, mask, torch.tensor(marks).view_as(mask))

    assert torch.equal(found.kept + found.dropped, torch.where(mask, process, 0))
    assert (found.kept * found.dropped).eq(0).all()
    assert shaping.key_steps_only(process, mask, mask).dropped.eq(0).all()
    assert shaping.key_steps_only(process, mask, ~mask).kept.eq(0).all()


def test_kl_is_charged_to_sampled_tokens_and_a_tool_gap_costs_one_gamma() -> None:
    batch = collate([row("atttaa", outcome=1.0)], dtype=torch.float64)
    steps = splitters.every_token(batch)
    k1 = torch.tensor([[0.2, 5, 5, 5, 0.1, 0.4]], dtype=torch.float64)

    penalty = shaping.kl_penalty(k1 - 3, torch.full_like(k1, -3), batch.action_mask, coef=0.5)
    reward = steps.sum(penalty) + at_end(batch.outcome, steps)
    to_go = credit.gae(reward, torch.zeros_like(reward), gamma=0.9, lam=1.0)

    assert spread.repeat(reward, steps)[0].tolist() == pytest.approx([-0.1, 0, 0, 0, -0.05, 0.8])
    assert spread.repeat(to_go, steps)[0].tolist() == pytest.approx([0.503, 0, 0, 0, 0.67, 0.8])


def test_kl_in_the_reward_joins_the_outcome_at_the_last_token() -> None:
    batch = collate([row("aa", outcome=1.0)], dtype=torch.float64)
    steps = splitters.every_token(batch)
    logprobs = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)

    penalty = shaping.kl_penalty(logprobs, logprobs - torch.tensor([[0.1, 0.2]]), batch.action_mask, coef=0.5)

    assert (steps.sum(penalty) + at_end(batch.outcome, steps))[0].tolist() == pytest.approx([-0.05, 0.9])


@given(grids(), st.sampled_from([0.0, 0.5, 2.0]))
def test_the_kl_penalty_of_a_rollout_is_that_of_its_whole_sequence(grid: Grid, coef: float) -> None:
    logprobs, mask = grid
    ref = logprobs.flip(0).nan_to_num(0, 0, 0) - 0.25
    penalty = shaping.kl_penalty(logprobs, ref, mask, coef=coef)
    of_sequence = torch.where(mask, logprobs, 0).sum(1) - torch.where(mask, ref, 0).sum(1)

    assert torch.equal(penalty.sum(1), -coef * of_sequence)
    assert torch.equal(penalty, -coef * losses.kl_k1(logprobs, ref, mask))


def policy_gradient_of(reward: Tensor, probabilities: Tensor) -> float:
    """Expected gradient by the logit of action 0 of two, each drawn with its probability and paid its reward."""
    scores = torch.stack([probabilities[1], -probabilities[0]])  # d log p(action) / d logit
    return float((probabilities * reward * scores).sum())


def test_in_the_reward_k1_has_the_gradient_of_the_kl_and_k2_and_k3_have_not() -> None:
    p, ref = torch.tensor([0.8, 0.2], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    columns = p.log().unsqueeze(0), ref.log().unsqueeze(0), torch.ones(1, 2).bool()
    truth = 0.8 * 0.2 * math.log(4)  # of KL(p || ref), by hand

    assert truth == pytest.approx(0.221807, abs=1e-6)
    assert policy_gradient_of(shaping.kl_penalty(*columns, coef=1.0)[0], p) == pytest.approx(-truth, abs=1e-12)
    for wrong in (losses.kl_k2, losses.kl_k3):
        assert abs(policy_gradient_of(wrong(*columns)[0], p) - truth) > 0.1


def test_terms_in_the_reward_carry_no_gradient() -> None:
    tokens = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    on = torch.ones(1, 2).bool()

    assert not shaping.kl_penalty(tokens, tokens, on, coef=1.0).requires_grad
    assert not shaping.entropy_reward(tokens, on, coef=1.0).requires_grad


@given(grids())
def test_entropy_in_the_reward_is_linear_in_its_coefficient_and_the_bonus_turned_round(grid: Grid) -> None:
    entropy, mask = grid
    found = shaping.entropy_reward(entropy, mask, coef=0.5)

    assert torch.equal(found, -0.5 * losses.entropy_bonus(entropy, mask))
    assert torch.equal(shaping.entropy_reward(entropy, mask, coef=0.25) * 2, found)
    assert shaping.entropy_reward(entropy, mask, coef=0.0).eq(0).all()


GRID, ON, ONE_STEP = torch.zeros(1, 1), torch.ones(1, 1).bool(), splitters.whole(batch_of("a"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: shaping.scale(GRID, ON, factor=-1.0), "factor .* at least 0; -1.0 came", id="scale"),
        pytest.param(lambda: shaping.clip(GRID, ON, low=0.5), "holds 0, low before high; 0.5 to 1.0", id="over 0"),
        pytest.param(lambda: shaping.clip(GRID, ON, high=-0.5), "holds 0, low before high; -1.0 to -0.5", id="under 0"),
        pytest.param(lambda: shaping.clip(GRID, ON, low=0.0, high=0.0), "0.0 to 0.0 came", id="nothing"),
        pytest.param(lambda: shaping.clip(GRID, ON, low=NAN), "nan to 1.0 came", id="clip at NaN"),
        pytest.param(lambda: shaping.clip_total({"a": GRID}, ON, low=0.5), "0.5 to 1.0 came", id="clip total, low"),
        pytest.param(lambda: shaping.clip_total({"a": GRID}, ON, high=-0.5), "to -0.5 came", id="clip total, high"),
        pytest.param(lambda: shaping.block_sums(GRID, ONE_STEP, size=0), "size .* at least 1; 0 came", id="sums"),
        pytest.param(lambda: shaping.block_means(GRID, ONE_STEP, size=0), "size .* at least 1; 0 came", id="means"),
        pytest.param(lambda: shaping.kl_penalty(GRID, GRID, ON, coef=-0.5), "coef .* at least 0; -0.5", id="kl"),
        pytest.param(lambda: shaping.kl_penalty(GRID, GRID, ON, coef=NAN), "coef .* finite .* nan came", id="kl NaN"),
        pytest.param(lambda: shaping.entropy_reward(GRID, ON, coef=-0.5), "coef .* at least 0; -0.5", id="entropy"),
        pytest.param(lambda: shaping.entropy_reward(GRID, ON, coef=INF), "coef .* finite .* inf", id="endless entropy"),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_what_came(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
    assert shaping.scale(GRID, ON, factor=0.0).eq(0).all()
