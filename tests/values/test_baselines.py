"""Values that need no model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rewards import mixing
from apportion.rewards.mixing import at_end
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters
from apportion.values import baselines
from batches import FEWER, SIXTEENTHS, batch_of, random_rows, row

OF_GROUPS = [
    pytest.param(baselines.group_mean, id="group mean"),
    pytest.param(baselines.leave_one_out, id="leave one out"),
]


def whole_values(batch: Rollouts, value: baselines.Value) -> torch.Tensor:
    """The value of each rollout [N] when the answer is one step."""
    steps = splitters.whole(batch)
    return value(batch, steps, at_end(batch.outcome, steps)).squeeze(1)


def mixed_groups() -> Rollouts:
    """Sizes 3, 2, 1, in shuffled order."""
    names, outcomes = ("q1", "q2", "q1", "q3", "q2", "q1"), (1.0, 5.0, 3.0, 7.0, 5.0, 2.0)
    return collate([row("pa", group=name, outcome=score) for name, score in zip(names, outcomes, strict=True)])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(baselines.zero, [0, 0, 0, 0, 0, 0], id="zero"),
        pytest.param(baselines.group_mean, [2, 5, 2, 7, 5, 2], id="group mean"),
        pytest.param(baselines.leave_one_out, [2.5, 5, 1.5, 7, 5, 2], id="leave one out"),
    ],
)
def test_groups_are_known_by_their_name_not_by_their_place(value: baselines.Value, expected: list[float]) -> None:
    assert whole_values(mixed_groups(), value).tolist() == expected


def rollouts_with_unscored_siblings() -> Rollouts:
    outcomes = (None, 1.0, 0.0, 100.0, 0.5)
    return collate([row("p" if score == 100 else "pa", outcome=score) for score in outcomes])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(baselines.group_mean, [0.5, 0.5, 0.5], id="group mean"),
        pytest.param(baselines.leave_one_out, [0.25, 0.75, 0.5], id="leave one out"),
    ],
)
def test_rollouts_without_score_or_action_have_no_vote(value: baselines.Value, expected: list[float]) -> None:
    batch = rollouts_with_unscored_siblings()

    assert whole_values(batch, value)[batch.votes].tolist() == expected


def test_unscored_step_rewards_have_no_vote() -> None:
    batch = collate([row("a", outcome=1.0), row("a", step_rewards=(50.0,)), row("a", outcome=2.0)])
    steps = splitters.whole(batch)
    rewards = torch.tensor([[1.0], [50.0], [2.0]])

    assert baselines.group_mean(batch, steps, rewards).tolist() == [[1.5], [1.5], [1.5]]
    assert baselines.leave_one_out(batch, steps, rewards)[::2].tolist() == [[2.0], [1.0]]


def test_the_return_is_the_sum_over_steps_and_stands_before_each_of_them() -> None:
    batch = collate([row("aa", outcome=0.0), row("a", outcome=0.0)])
    rewards = torch.tensor([[1.0, 2.0], [1.0, 0.0]])

    assert baselines.group_mean(batch, splitters.every_token(batch), rewards).tolist() == [[2, 2], [2, 0]]
    assert baselines.leave_one_out(batch, splitters.every_token(batch), rewards).tolist() == [[1, 1], [3, 0]]
    assert baselines.zero(batch, splitters.every_token(batch), rewards).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("value", OF_GROUPS)
@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
@pytest.mark.parametrize("size", [pytest.param(size, id=str(size)) for size in (1, 2, 3, 6, 7, 64)])
@pytest.mark.parametrize("outcome", [pytest.param(0.1, id="good"), pytest.param(-0.1, id="bad")])
def test_the_baseline_of_equal_returns_is_that_return_and_no_rounding_of_it(
    value: baselines.Value, dtype: torch.dtype, size: int, outcome: float
) -> None:
    batch = collate([row("a", outcome=outcome)] * size, dtype=dtype)

    assert torch.equal(whole_values(batch, value), batch.outcome)


@given(random_rows())
def test_over_a_group_mean_credit_sums_to_nothing(rows: list[Rollout]) -> None:
    batch = collate(rows, dtype=torch.float64)
    credit = torch.where(batch.votes, batch.outcome - whole_values(batch, baselines.group_mean), 0)
    sums = torch.zeros(3, dtype=torch.float64).index_add(0, batch.groups, credit)

    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-12)


@given(random_rows())
def test_leaving_one_out_is_the_group_mean_stretched(rows: list[Rollout]) -> None:
    batch = collate(rows, dtype=torch.float64)
    size = torch.bincount(batch.groups[batch.votes], minlength=3)[batch.groups].double()
    over_mean = batch.outcome - whole_values(batch, baselines.group_mean)
    over_others = batch.outcome - whole_values(batch, baselines.leave_one_out)
    stretched = torch.where(size > 1, size / (size - 1).clamp(min=1), 0) * over_mean

    torch.testing.assert_close(over_others[batch.votes], stretched[batch.votes], rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", OF_GROUPS)
@FEWER
@given(rows=random_rows(), shift=SIXTEENTHS)
def test_a_constant_on_all_outcomes_moves_the_baseline_by_it(
    value: baselines.Value, rows: list[Rollout], shift: float
) -> None:
    batch = collate(rows, dtype=torch.float64)
    moved = batch.with_outcome(batch.outcome + shift)

    expected = whole_values(batch, value) + shift
    torch.testing.assert_close(whole_values(moved, value)[batch.votes], expected[batch.votes], rtol=0, atol=1e-12)


@given(random_rows(), st.sampled_from(list(splitters.BY_NAME.values())))
def test_past_the_last_step_there_is_no_value(rows: list[Rollout], split: splitters.Splitter) -> None:
    batch = collate(rows)
    steps = split(batch)
    rewards = torch.ones(steps.mask.shape)

    for value in (baselines.group_mean, baselines.leave_one_out, baselines.given, baselines.zero):
        assert value(batch, steps, rewards)[~steps.mask].eq(0).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param((0.5, 0.25), [[0.5, 0.25]], id="one a step"),
        pytest.param((0.5, 0.125, 0.25, 0.75), [[0.5, 0.25]], id="of token values, that of a step's first token"),
    ],
)
def test_given_values_are_those_before_each_step(values: tuple[float, ...], expected: list[list[float]]) -> None:
    batch = collate([row("paataa", list("qabtcd"), outcome=1.0, step_values=values)])

    assert baselines.given(batch, splitters.lines(batch), torch.zeros(1, 2)).tolist() == expected


def test_given_values_come_in_the_kind_of_number_of_the_rewards() -> None:
    batch = collate([row("a", outcome=1.0, step_values=(0.1,))])

    for dtype in (torch.float32, torch.float64):
        given_values = baselines.given(batch, splitters.whole(batch), torch.zeros(1, 1, dtype=dtype))
        assert torch.equal(given_values, torch.tensor([[0.1]], dtype=dtype))


def test_values_may_be_missing_only_where_nothing_is_learned() -> None:
    rows = [row("a", outcome=1.0, step_values=(0.5,)), row("a"), row("p", outcome=1.0)]
    batch = collate(rows)

    assert baselines.given(batch, splitters.whole(batch), torch.zeros(3, 1)).tolist() == [[0.5], [0], [0]]

    bare = collate([*rows, row("a", outcome=1.0, id="bare")])
    with pytest.raises(InputError, match="rollout bare has no step_values"):
        baselines.given(bare, splitters.whole(bare), torch.zeros(4, 1))


def test_a_group_without_rollouts_is_refused() -> None:
    batch = batch_of("a", "a")

    with pytest.raises(InputError, match=r"group 0 \(0\) has no rollout"):
        replace(batch, groups=torch.tensor([3, 1]), group_names=())


def test_the_group_mean_to_go_is_the_mean_step_times_the_steps_left() -> None:
    # step rewards 1, 2, 3 and 6 of group g: mean 3; alone in h: 5; unscored and empty ones have no say
    batch = collate(
        [
            row("aaa", outcome=0.0, step_rewards=(1.0, 2.0, 3.0)),
            row("a", outcome=0.0, step_rewards=(6.0,)),
            row("a", outcome=0.0, step_rewards=(5.0,), group="h"),
            row("aa", step_rewards=(100.0, 100.0)),
            row("p", outcome=9.0),
        ]
    )
    steps = splitters.every_token(batch)
    rewards = mixing.AS_GIVEN(batch, steps)["process"]

    found = baselines.group_mean_to_go(batch, steps, rewards)

    assert found.tolist() == [[9, 6, 3], [3, 0, 0], [5, 0, 0], [6, 3, 0], [0, 0, 0]]


@given(random_rows())
def test_of_one_step_each_the_group_mean_to_go_is_the_group_mean(rows: list[Rollout]) -> None:
    batch = collate(rows, dtype=torch.float64)
    steps = splitters.whole(batch)
    rewards = torch.stack(list(mixing.AS_GIVEN(batch, steps).values())).sum(0)

    to_go, mean = (f(batch, steps, rewards) for f in (baselines.group_mean_to_go, baselines.group_mean))

    torch.testing.assert_close(to_go, mean)
