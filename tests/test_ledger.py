"""The straight line from rollouts to advantages, and its ledger."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from apportion import credit, ledger, recipes
from apportion.errors import InputError, LawError
from apportion.ledger import Ledger, Recipe, apportion
from apportion.normalise import normalise_then_sum
from apportion.rewards.mixing import MIXES, Mixed
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters, spread
from apportion.values import baselines
from batches import INF, NAN, batch_of, ledger_of, row


def a_batch() -> Rollouts:
    """Two lines round a tool answer; one line; unscored."""
    return collate(
        [
            row("paata", list("qab.c"), outcome=1.0, step_values=(0.25, 0.75)),
            row("aa", list("de"), outcome=0.0, step_values=(0.5,), step_rewards=(0.125,)),
            row("aa", list("fg")),
        ]
    )


def test_every_column_of_the_ledger_by_hand() -> None:
    found = apportion(a_batch(), recipes.by_name("vineppo"))

    assert found.steps.counts.tolist() == [2, 1, 1]
    assert {name: part.tolist() for name, part in found.parts.items()} == {
        "outcome": [[0, 1], [0, 0], [0, 0]],
        "process": [[0, 0], [0.125, 0], [0, 0]],
    }
    assert found.reward.tolist() == [[0, 1], [0.125, 0], [0, 0]]
    assert found.value.tolist() == [[0.25, 0.75], [0.5, 0], [0, 0]]
    assert found.credit.tolist() == [[0.5, 0.25], [-0.375, 0], [0, 0]]
    assert found.normalised.tolist() == found.credit.tolist()
    assert found.advantage.tolist() == [[0, 0.5, 0.5, 0, 0.25], [-0.375, -0.375, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert found.mask.int().tolist() == [[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_stages_are_taken_in_order_and_each_from_the_one_before() -> None:
    recipe = Recipe(
        name="own",
        split=splitters.every_token,
        value=lambda rollouts, steps, rewards: rewards.flip(1),
        credit=lambda rewards, values: 10 * rewards + values,
        normalise=lambda credit, mask, groups: torch.where(mask, credit + 100, 0),
        spread=lambda steps, step_map: 2 * spread.repeat(steps, step_map),
        reward=Mixed(process=0.0, outcome=0.5),
    )

    found = apportion(collate([row("aat", outcome=2.0, step_rewards=(0.0, 0.0))]), recipe)

    assert found.reward.tolist() == [[0, 1]]
    assert found.value.tolist() == [[1, 0]]
    assert found.credit.tolist() == [[1, 10]]
    assert found.normalised.tolist() == [[101, 110]]
    assert found.advantage.tolist() == [[202, 220, 0]]


def test_an_unscored_rollout_is_no_zero_credit_it_takes_no_part() -> None:
    rows = [row("p" if score == 100 else "pa", outcome=score) for score in (None, 1.0, 0.0, 100.0, 0.5)]

    found = ledger_of(collate(rows), recipes.by_name("dr_grpo"))

    assert found.rollouts.votes.tolist() == [False, True, True, False, True]
    assert found.advantage[:, 1].tolist() == [0, 0.5, -0.5, 0, 0]
    assert found.mask[:, 1].tolist() == [False, True, True, False, True]
    assert found.value.tolist() == [[0], [0.5], [0.5], [0], [0.5]]


def test_credit_that_a_function_pays_to_the_unscored_is_taken_back() -> None:
    recipe = replace(recipes.by_name("reinforce"), credit=lambda rewards, values: torch.ones_like(rewards))

    assert apportion(collate([row("a", outcome=1.0), row("a")]), recipe).credit.tolist() == [[1], [0]]


def test_the_same_sum_at_another_place_is_seen_by_steps_and_not_by_the_whole_answer() -> None:
    batch = collate(
        [row("aaaa", outcome=0.0, step_rewards=rewards) for rewards in ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))]
    )
    with pytest.warns(UserWarning, match="the step rewards of 2 rollouts are summed to one number each"):
        as_a_whole = apportion(batch, recipes.by_name("dr_grpo"))
    to_go = replace(recipes.by_name("reinforce"), split=splitters.every_token, credit=credit.to_go)

    assert apportion(batch, to_go).advantage.tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]]
    assert as_a_whole.advantage.tolist() == [[0] * 4, [0] * 4]


def test_two_rewards_are_dense_and_one_is_not() -> None:
    rows = [row("aa", outcome=0.0, step_rewards=(1.0, 2.0)), row("a", outcome=0.0, step_rewards=(1.0,))]

    with pytest.warns(UserWarning, match="the step rewards of 1 rollouts are summed"):
        apportion(collate(rows), recipes.by_name("dr_grpo"))


def test_rollouts_without_any_action_are_named_in_a_warning() -> None:
    batch = collate([row("p", id=name, outcome=1.0) for name in "abcd"] + [row("a", outcome=1.0)])

    with pytest.warns(UserWarning, match=r"4 of 5 rollouts have no sampled token \(first: a, b, c\)"):
        apportion(batch, recipes.by_name("grpo"))


def test_no_warning_comes_where_every_rollout_acts() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apportion(batch_of("a", "pa"), recipes.by_name("grpo"))

    assert caught == []


@pytest.mark.parametrize("bad", [pytest.param(x, id=str(x)) for x in (NAN, INF, -INF)])
def test_a_value_that_is_no_number_is_refused_only_where_it_is_used(bad: float) -> None:
    values = torch.tensor([[0.5, bad], [0.25, 0.75], [bad, bad]])
    recipe = replace(
        recipes.by_name("reinforce"), split=splitters.every_token, value=lambda rollouts, steps, rewards: values
    )

    found = apportion(collate([row("a", outcome=1.0), row("aa", outcome=1.0), row("aa")]), recipe)
    assert found.value.tolist() == [[0.5, 0], [0.25, 0.75], [0, 0]]

    with pytest.raises(InputError, match=rf"rollout 0, step 1: the value before it is {bad}"):
        apportion(collate([row("aa", outcome=1.0), row("aa", outcome=1.0), row("aa")]), recipe)


def half_lost(rewards: Tensor, values: Tensor) -> Tensor:
    return 0.5 * credit.telescoping(rewards, values)


def shifted(rewards: Tensor, values: Tensor) -> Tensor:
    return credit.telescoping(rewards, values).roll(1, dims=1)


@pytest.mark.parametrize(
    ("law", "change"),
    [
        pytest.param(ledger.conservation(), {"credit": half_lost}, id="conservation: half is lost"),
        pytest.param(ledger.traceability, {"credit": credit.to_go}, id="traceability: later rewards"),
        pytest.param(ledger.traceability, {"credit": shifted}, id="traceability: the wrong step"),
        pytest.param(ledger.consistency, {"credit": credit.to_go}, id="consistency: later rewards"),
        pytest.param(ledger.group_balance, {}, id="group balance: values that are no group mean"),
        pytest.param(ledger.silence, {"spread": lambda steps, to: torch.ones(to.cell.shape)}, id="silence: all paid"),
        pytest.param(ledger.conservation(gamma=0.5), {"credit": credit.gae_with(gamma=1.0, lam=0.0)}, id="other gamma"),
        pytest.param(ledger.conservation(lam=0.5), {"credit": credit.gae_with(gamma=1.0, lam=0.0)}, id="other lam"),
    ],
)
def test_a_broken_recipe_breaks_its_law_and_is_named(law: ledger.Law, change: dict[str, object]) -> None:
    recipe = replace(recipes.by_name("vineppo"), name="broken one", laws=(law,), **change)  # type: ignore[arg-type]
    found = apportion(a_batch(), recipe)

    assert [residual.holds for residual in found.check()] == [False]
    with pytest.raises(LawError, match=rf"recipe broken one: {found.check()[0].law}: BROKEN"):
        found.require_laws()


@pytest.mark.parametrize(
    ("gamma", "lam"),
    [pytest.param(0.5, 0.0, id="gamma"), pytest.param(1.0, 0.5, id="lam"), pytest.param(0.5, 0.25, id="both")],
)
def test_discounted_credit_keeps_the_law_of_its_own_gamma_and_lam(gamma: float, lam: float) -> None:
    recipe = replace(
        recipes.by_name("vineppo"),
        credit=credit.gae_with(gamma=gamma, lam=lam),
        laws=(ledger.conservation(gamma=gamma, lam=lam),),
    )
    found = apportion(a_batch(), recipe)

    assert found.require_laws() is found


def reward_halved(found: Ledger) -> Ledger:
    """A ledger whose own reward column lost half, and whose credit agrees with that."""
    return replace(found, reward=found.reward / 2, credit=credit.telescoping(found.reward / 2, found.value))


def test_conservation_starts_from_what_was_handed_in_not_from_the_reward_column() -> None:
    found = apportion(a_batch(), recipes.by_name("vineppo"))

    (residual,) = (r for r in reward_halved(found).check() if r.law == "conservation")

    assert residual.worst == 0.5
    assert residual.place == 0
    assert not residual.holds


def test_conservation_asks_nothing_of_a_rollout_without_a_vote() -> None:
    batch = collate([row("a", outcome=1.0), row("a", step_rewards=(5.0,)), row("p", outcome=3.0)])

    assert [r.worst for r in ledger_of(batch, recipes.by_name("reinforce")).check()] == [0, 0, 0, 0]


def test_a_mixed_reward_is_conserved_as_the_mix_says() -> None:
    rows = [row("aa", outcome=1.0, step_rewards=(1.0, 0.5)), row("aaa", outcome=0.0, step_rewards=(0.25, 0.0, 0.5))]
    recipe = replace(recipes.by_name("rloo"), split=splitters.every_token, reward=Mixed(process=0.75, outcome=0.25))

    found = apportion(collate(rows), recipe)

    assert found.reward.sum(1).tolist() == [0.8125, 0.1875]
    (residual,) = (r for r in found.check() if r.law == "conservation")
    assert residual.holds


@pytest.mark.parametrize(
    ("advantage", "worst", "place"),
    [
        pytest.param([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]], 0.0, 0, id="kept"),
        pytest.param([[0.0, 3.0, 0.0], [0.0, -1e-30, 0.0]], 1e-30, 4, id="unscored paid a little"),
        pytest.param([[0.0, 3.0, 2.0], [0.0, 0.0, 0.0]], 2.0, 2, id="tool token paid"),
        pytest.param([[0.0, NAN, 0.0], [0.0, 0.0, 0.0]], INF, 1, id="no number"),
    ],
)
def test_silence_allows_nothing_at_all(advantage: list[list[float]], worst: float, place: int) -> None:
    batch = collate([row("pat", outcome=1.0), row("paa")])
    found = replace(ledger_of(batch, recipes.by_name("reinforce")), advantage=torch.tensor(advantage))

    residual = ledger.silence(found)

    assert (residual.worst, residual.place) == (pytest.approx(worst), place)
    assert residual.holds is (worst == 0)
    assert residual.tolerance == 0


def test_what_rounding_allows_grows_with_the_numbers_the_steps_and_the_group() -> None:
    def tolerance(count: int, outcome: float, steps: int, value: float = 0.0) -> float:
        rows = [row("a" * steps, outcome=outcome, step_values=(value,) * steps)] * count
        recipe = replace(recipes.by_name("reinforce"), split=splitters.every_token, value=baselines.given)
        return apportion(collate(rows), recipe).check()[0].tolerance

    assert tolerance(1, 1.0, 1) == 2.0**-17
    assert tolerance(1, -4.0, 1) == 2.0**-15
    assert tolerance(1, 1.0, 1, value=-4.0) == 2.0**-15
    assert tolerance(1, 1.0, 4) == 2.0**-15
    assert tolerance(4, 1.0, 1) == 2.0**-15


def test_a_ledger_that_keeps_its_laws_is_returned() -> None:
    found = apportion(a_batch(), recipes.by_name("grpo"))

    assert found.require_laws() is found
    assert [r.law for r in found.check()] == ["conservation", "consistency", "traceability", "silence", "group balance"]


def test_each_rollout_has_a_row_with_its_part_of_every_column() -> None:
    two_lines, one_line, unscored = (row["ledger"] for row in apportion(a_batch(), recipes.by_name("vineppo")).rows())

    assert two_lines == {
        "recipe": "vineppo",
        "step_of": [-1, 0, 0, -1, 1],
        "parts": {"outcome": [0, 1], "process": [0, 0]},
        "reward": [0, 1],
        "value": [0.25, 0.75],
        "credit": [0.5, 0.25],
        "normalised": [0.5, 0.25],
        "advantage": [0, 0.5, 0.5, 0, 0.25],
    }
    assert (one_line["step_of"], one_line["parts"]["process"]) == ([0, 0], [0.125])
    assert (one_line["credit"], one_line["advantage"]) == ([-0.375], [-0.375, -0.375])
    assert unscored["step_of"] == [0, 0]
    assert [unscored[name] for name in ("value", "credit", "normalised", "advantage")] == [None] * 4


def test_a_row_carries_the_rollout_it_tells_of() -> None:
    rows = apportion(a_batch(), recipes.by_name("vineppo")).rows()

    assert [row["outcome"] for row in rows] == [1.0, 0.0, None]
    assert [(row["prompt"], row["response"]) for row in rows] == [([0], [1, 2, 3, 4]), ([], [0, 1]), ([], [0, 1])]


def graded(outcomes: list[float], process: list[float], *, values: tuple[float, ...] | None = None) -> Rollouts:
    return collate(
        [
            Rollout([1, 2], [False, True], "g", outcome, step_rewards=(step,), step_values=values)
            for outcome, step in zip(outcomes, process, strict=True)
        ]
    )


def test_each_part_normalised_by_itself_weighs_alike_whatever_its_scale() -> None:
    # outcome 0, 1, 0.5 has mean 0.5 and spread 0.5; process 300, 200, 100 has mean 200 and spread 100
    recipe = replace(recipes.by_name("grpo"), combine=normalise_then_sum)
    ledger = apportion(graded([0.0, 1.0, 0.5], [300.0, 200.0, 100.0]), recipe)
    assert ledger.normalised.squeeze(1).tolist() == [-1 + 1, 1 + 0, 0 - 1]
    smaller = apportion(graded([0.0, 1.0, 0.5], [3.0, 2.0, 1.0]), recipe)
    assert smaller.normalised.tolist() == ledger.normalised.tolist()


def test_the_sum_normalised_is_ruled_by_the_part_with_the_larger_numbers() -> None:
    ledger = apportion(graded([0.0, 1.0, 0.5], [300.0, 200.0, 100.0]), recipes.by_name("grpo"))
    assert ledger.normalised.squeeze(1).tolist() == pytest.approx([1, 0, -1], abs=0.02)


def test_with_one_part_both_ways_to_combine_are_the_same() -> None:
    rows = [Rollout([1, 2], [False, True], "g", outcome) for outcome in (0.0, 1.0, 1.0)]
    grpo = recipes.by_name("grpo")
    one = apportion(collate(rows), grpo)
    other = apportion(collate(rows), replace(grpo, combine=normalise_then_sum))
    assert torch.equal(one.normalised, other.normalised)


def test_values_given_for_the_whole_reward_cannot_be_shared_out_among_its_parts() -> None:
    recipe = replace(recipes.by_name("vineppo"), split=splitters.whole, combine=normalise_then_sum)
    with pytest.raises(InputError, match="of the whole reward"):
        apportion(graded([0.0, 1.0], [0.5, 0.5], values=(0.5,)), recipe)


def test_values_of_the_whole_reward_are_told_at_any_scale() -> None:
    recipe = replace(recipes.by_name("vineppo"), split=splitters.whole, combine=normalise_then_sum)
    with pytest.raises(InputError, match="of the whole reward"):
        apportion(graded([0.0, 2e-5], [1e-5, 1e-5], values=(1e-5,)), recipe)


def test_parts_that_all_earn_nothing_are_no_contradiction() -> None:
    recipe = replace(recipes.by_name("grpo"), combine=normalise_then_sum)
    assert apportion(graded([1.0, 1.0], [0.5, 0.5]), recipe).normalised.tolist() == [[0], [0]]


def test_steps_that_tell_nothing_apart_are_credited_as_a_whole_and_it_is_said() -> None:
    rows = [
        row("aa", ["a\n", "b"], outcome=1.0, step_values=(0.5, 0.5), step_rewards=(0.25, 0.0)),
        row("aa", ["a\n", "b"], outcome=1.0, step_values=(0.5, 0.75), step_rewards=(0.25, 0.0)),
        row("aa", ["a\n", "b"], step_values=(0.5, 0.5), step_rewards=(0.25, 0.0)),
    ]
    batch = collate(rows)
    recipe = replace(recipes.by_name("vineppo"), min_spread=0.125)

    with pytest.warns(UserWarning, match="1 of 3 rollouts are credited as a whole: 1 whose step values are alike"):
        found = apportion(batch, recipe)

    assert found.credit.tolist() == [[0.75, 0], [0.5, 0.25], [0, 0]]
    assert found.advantage.tolist() == [[0.75, 0.75], [0.5, 0.25], [0, 0]]
    assert found.require_laws() is found
    assert found.steps.counts.tolist() == [1, 2, 2]
    assert {name: part.tolist() for name, part in found.parts.items()} == {
        "outcome": [[1, 0], [0, 1], [0, 0]],
        "process": [[0.25, 0], [0.25, 0], [0.25, 0]],
    }


def test_a_mix_pays_by_the_steps_as_they_were_cut_and_the_books_still_close() -> None:
    rows = [row("aa", ["a\n", "b"], outcome=1.0, step_values=(0.5, 0.5), step_rewards=(1.0, 0.5))]
    recipe = replace(recipes.by_name("vineppo"), reward=MIXES["default"], min_spread=0.0)

    with pytest.warns(UserWarning, match="credited as a whole"):
        found = apportion(collate(rows, dtype=torch.float64), recipe)

    assert float(found.credit.sum()) == pytest.approx(0.7 * 0.75 + 0.3 - 0.5)
    assert found.require_laws() is found


def test_parts_of_steps_that_were_merged_are_normalised_apart_too() -> None:
    rows = [
        row("aa", ["a\n", "b"], outcome=outcome, step_rewards=(reward, 0.0))
        for outcome, reward in ((1.0, 4.0), (0.0, 0.0))
    ]
    recipe = replace(recipes.by_name("grpo"), split=splitters.lines, combine=normalise_then_sum, min_spread=0.0)

    with pytest.warns(UserWarning, match="2 of 2 rollouts are credited as a whole"):
        found = apportion(collate(rows, dtype=torch.float64), recipe)

    torch.testing.assert_close(found.advantage, 2 * 0.5**0.5 * torch.tensor([[1.0, 1.0], [-1, -1]]).double())
