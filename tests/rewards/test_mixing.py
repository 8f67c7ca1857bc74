"""From a judge's numbers to one reward a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion import credit
from apportion.errors import InputError
from apportion.rewards.mixing import AS_GIVEN, MIXES, Bootstrapped, Mixed, Reward, at_end
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters, spread
from apportion.steps.grid import number_steps
from batches import FEWER, FLOATS, NAN, batch_of, random_rows, row

TWO_STEPS = torch.tensor([[True, False, True, False]])


def test_the_outcome_is_paid_at_the_last_step() -> None:
    steps = splitters.every_token(batch_of("aaa", "pa", "pp", "aa"))

    paid = at_end(torch.tensor([1.0, -2.0, 4.0, NAN]), steps)

    assert paid.tolist() == [[0, 0, 1], [-2, 0, 0], [0, 0, 0], [0, 0, 0]]


@given(random_rows())
def test_rows_sum_to_the_outcome_where_there_is_one_to_pay(rows: list[Rollout]) -> None:
    batch = collate(rows)

    for split in splitters.BY_NAME.values():
        paid = at_end(batch.outcome, split(batch))
        assert torch.equal(paid.sum(1), torch.where(batch.votes, batch.outcome, 0))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        pytest.param({"outcome": 1.0}, [0, 0, 0, 1], id="one for the answer"),
        pytest.param({"step_rewards": (0.25, 0.75)}, [0, 0.25, 0, 0.75], id="one a step"),
        pytest.param({"step_rewards": (0.0, 0.5, 0.0, 0.5)}, [0, 0.5, 0, 0.5], id="one a sampled token"),
        pytest.param({"outcome": 1.0, "step_rewards": (0.25, 0.75)}, [0, 0.25, 0, 1.75], id="both"),
    ],
)
def test_rewards_of_any_fineness_are_placed_without_guessing(
    columns: dict[str, float | tuple[float, ...]], expected: list[float]
) -> None:
    batch = collate([row("aaaa", **columns)])
    steps = number_steps(batch, TWO_STEPS)

    reward = torch.stack(list(AS_GIVEN(batch, steps).values())).sum(0)

    assert spread.last_token(reward, steps).tolist() == [expected]


def test_rewards_that_fit_neither_steps_nor_tokens_are_refused() -> None:
    batch = collate([row("aaaa", step_rewards=(0.1, 0.2, 0.3))])

    with pytest.raises(
        InputError, match="3 step rewards came, which fits neither its 2 steps nor its 4 sampled tokens"
    ):
        AS_GIVEN(batch, number_steps(batch, TWO_STEPS))


def test_every_part_keeps_its_name() -> None:
    batch = collate([row("aa", outcome=1.0), row("aa", outcome=0.0, step_rewards=(0.5, 0.25))])
    steps = splitters.every_token(batch)

    parts = AS_GIVEN(batch, steps)

    assert {name: part.tolist() for name, part in parts.items()} == {
        "outcome": [[0, 1], [0, 0]],
        "process": [[0, 0], [0.5, 0.25]],
    }
    assert list(AS_GIVEN(batch_of("a"), splitters.whole(batch_of("a")))) == ["outcome"]


def test_a_mix_pays_the_mean_step_reward_so_that_more_steps_earn_no_more() -> None:
    batch = collate(
        [
            row("aaaa", outcome=1.0, step_rewards=(1.0, 0.0, 1.0, 0.0)),
            row("aa", outcome=0.0, step_rewards=(1.0, 1.0)),
            row("p", outcome=1.0),
        ]
    )

    parts = Mixed(process=0.75, outcome=0.25)(batch, splitters.every_token(batch))

    assert parts["outcome"].tolist() == [[0, 0, 0, 0.25], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert parts["process"].tolist() == [[0.1875, 0, 0.1875, 0], [0.375, 0.375, 0, 0], [0, 0, 0, 0]]


def test_a_mix_refuses_a_scored_rollout_without_step_rewards_for_none_is_not_0() -> None:
    mix = Mixed(process=0.75, outcome=0.25)
    rows = [row("aa", outcome=2.0, step_rewards=(1.0, 1.0)), row("aa", outcome=2.0)]

    with pytest.raises(InputError, match="rollout 1 has no step_rewards"):
        mix(collate(rows), splitters.whole(collate(rows)))

    unscored = collate([rows[0], row("aa")])
    assert mix(unscored, splitters.whole(unscored))["outcome"].tolist() == [[0.5], [0]]


@pytest.mark.parametrize(
    ("reward", "outcome", "scores", "steps", "total"),
    [
        pytest.param(AS_GIVEN, 1.0, (0.5, 0.25), 2, 1.75, id="as given"),
        pytest.param(AS_GIVEN, 1.0, None, 2, 1.0, id="as given, no step rewards"),
        pytest.param(Mixed(process=0.75, outcome=0.25), 2.0, (1.0, 0.0), 2, 0.875, id="mixed"),
        pytest.param(Mixed(process=0.75, outcome=0.25), 2.0, None, 2, 0.5, id="mixed, no step rewards"),
        pytest.param(Mixed(process=0.75, outcome=0.25), 2.0, (), 0, 0.5, id="mixed, no steps"),
    ],
)
def test_what_the_parts_of_a_rollout_must_add_up_to(
    reward: Reward, outcome: float, scores: tuple[float, ...] | None, steps: int, total: float
) -> None:
    assert reward.total(row("aa", outcome=outcome, step_rewards=scores), steps) == total


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in MIXES])
@FEWER
@given(rows=random_rows(FLOATS), split=st.sampled_from(list(splitters.BY_NAME.values())))
def test_parts_add_up_to_the_total_in_plain_arithmetic(
    name: str, rows: list[Rollout], split: splitters.Splitter
) -> None:
    reward = MIXES[name]
    rows = [r if r.step_rewards is not None else replace(r, step_rewards=(0.0,) * sum(r.action_mask)) for r in rows]
    batch = collate(rows, dtype=torch.float64)
    steps = split(batch)
    sums = torch.stack(list(reward(batch, steps).values())).sum((0, 2))
    scored = ~batch.outcome.isnan() & (steps.counts > 0)
    entries = zip(rows, steps.counts.tolist(), strict=True)
    totals = torch.tensor([reward.total(*entry) for entry in entries], dtype=torch.float64)

    torch.testing.assert_close(sums[scored], totals[scored], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "process", "outcome"),
    [
        pytest.param("default", 0.7, 0.3, id="default"),
        pytest.param("proof", 0.8, 0.2, id="proof"),
        pytest.param("sql", 0.8, 0.2, id="sql"),
        pytest.param("code", 0.8, 0.2, id="code"),
        pytest.param("chat", 0.3, 0.7, id="chat"),
    ],
)
def test_presets_weigh_process_against_outcome(name: str, process: float, outcome: float) -> None:
    assert MIXES[name] == Mixed(process=process, outcome=outcome)


def test_a_cut_off_rollout_is_paid_what_was_still_expected_and_an_ended_one_is_not() -> None:
    rows = [
        row("aa", outcome=1.0, ended=False, end_value=0.5),
        row("aa", outcome=1.0, ended=True, end_value=0.5),
        row("aa", outcome=None, ended=False),
    ]
    batch = collate(rows)
    steps = splitters.every_token(batch)
    reward = Bootstrapped(AS_GIVEN, gamma=0.5)

    parts = reward(batch, steps)

    assert parts["outcome"].tolist() == [[0, 1], [0, 1], [0, 0]]
    assert parts["bootstrap"].tolist() == [[0, 0.25], [0, 0], [0, 0]]
    assert [reward.total(one, 2) for one in rows] == [1.25, 1.0, 0.0]


@pytest.mark.parametrize(
    "others", [pytest.param({}, id="none at all"), pytest.param({"end_value": 1.0}, id="of another one")]
)
def test_a_cut_off_rollout_without_an_end_value_is_refused_by_name(others: dict[str, float]) -> None:
    batch = collate([row("a", outcome=0.0, **others), row("a", outcome=0.0, ended=False, id="cut")])

    with pytest.raises(InputError, match="rollout cut was cut off and has no end_value"):
        Bootstrapped(AS_GIVEN)(batch, splitters.whole(batch))


@given(st.integers(1, 5), st.sampled_from([0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.8, 1.0]), FLOATS)
def test_credit_with_a_bootstrap_is_that_with_one_more_state_behind_the_last_step(
    steps: int, gamma: float, lam: float, end: float
) -> None:
    values = torch.arange(steps, dtype=torch.float64).unsqueeze(0) / 4
    batch = collate([row("a" * steps, outcome=2.0, ended=False, end_value=end)], dtype=torch.float64)
    grid = splitters.every_token(batch)
    reward = torch.stack(list(Bootstrapped(AS_GIVEN, gamma=gamma)(batch, grid).values())).sum(0)

    found = credit.gae(reward, values, gamma=gamma, lam=lam)

    later, after = 0.0, end
    for k in reversed(range(steps)):
        earned = 2.0 if k == steps - 1 else 0.0
        later = earned + gamma * after - float(values[0, k]) + gamma * lam * later
        after = float(values[0, k])
        assert abs(float(found[0, k]) - later) < 1e-12
