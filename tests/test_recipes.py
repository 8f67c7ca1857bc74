"""The conformance suite: what every recipe of the table must keep, on any batch, however it is laid out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from apportion import recipes
from apportion.errors import InputError
from apportion.ledger import Recipe, apportion
from apportion.rollouts import Rollout, Rollouts, Scores, collate, pack
from batches import FEWER, FLOATS, SIXTEENTHS, ledger_of, poisoned, random_rows, recut, row

ROWS = random_rows()
DTYPES = st.sampled_from([torch.float32, torch.float64])
RECIPES = [pytest.param(make(), id=name) for name, make in recipes.BY_NAME.items()]
TO_GO = ("grpo_process", "ppo")  # these fold later credit into earlier steps: their law is the peeled one
OVER_THE_BATCH = ("reinforce_plus_plus", "ppo")  # these whiten
BY_CONTEXT = ("tree",)  # these tell states apart by all that was said, so only padding may hold anything
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


def token_advantages(batch: Rollouts, recipe: Recipe) -> Tensor:
    """The advantages of all tokens in reading order, padding left out."""
    return ledger_of(batch, recipe).advantage[batch.valid_mask]


def close(left: Tensor, right: Tensor) -> None:
    room = 1e-11 if left.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(left, right, rtol=room, atol=room)


@every_recipe
@settings(max_examples=30)
@given(rows=random_rows(st.one_of(SIXTEENTHS, FLOATS)), dtype=DTYPES)
def test_every_law_that_a_recipe_declares_holds(recipe: Recipe, rows: list[Rollout], dtype: torch.dtype) -> None:
    found = ledger_of(collate(rows, dtype=dtype), recipe)

    assert len(recipe.laws) >= 2
    assert found.require_laws() is found


@pytest.mark.parametrize("recipe", [case for case in RECIPES if case.id not in TO_GO])
@FEWER
@given(rows=ROWS, dtype=DTYPES)
def test_credit_of_a_scored_answer_is_its_reward_less_where_it_started(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype
) -> None:
    # the law of conservation, worked out from the rows without any of the library's columns but the starting value
    found = ledger_of(collate(rows, dtype=dtype), recipe)

    for n, rollout in enumerate(rows):
        earned = 0.0
        if rollout.outcome is not None and any(rollout.action_mask):
            earned = rollout.outcome + sum(rollout.step_rewards or ()) - float(found.value[n, 0])
        assert float(found.credit[n].sum()) == pytest.approx(earned, abs=1e-4)


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES, extra=st.integers(0, 5))
def test_padding_and_what_stands_on_tokens_that_were_not_sampled_never_show(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype, extra: int
) -> None:
    batch = collate(rows, dtype=dtype)
    clean = ledger_of(batch, recipe)

    wider = poisoned(batch, extra)
    if recipe.name in BY_CONTEXT:
        context = torch.nn.functional.pad(batch.tokens, (0, extra))
        wider = replace(wider, tokens=torch.where(wider.valid_mask, context, wider.tokens))
    wide = ledger_of(wider, recipe)

    assert torch.equal(wide.advantage, torch.nn.functional.pad(clean.advantage, (0, extra)))
    assert torch.equal(wide.mask, torch.nn.functional.pad(clean.mask, (0, extra)))
    for column in ("reward", "value", "credit", "normalised"):
        assert torch.equal(getattr(wide, column), getattr(clean, column)), column


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES, width=st.integers(1, 9))
def test_packed_and_cut_rows_give_every_token_the_advantage_it_had(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype, width: int
) -> None:
    batch = collate(rows, dtype=dtype)
    longest = max(len(rollout.tokens) for rollout in rows)
    padded = token_advantages(batch, recipe)

    assert torch.equal(token_advantages(pack(batch, longest + width), recipe), padded)
    assert torch.equal(token_advantages(recut(batch, width), recipe), padded)


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES, data=st.data())
def test_rollouts_in_another_order_have_the_same_advantages(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    found = ledger_of(collate(rows, dtype=dtype), recipe).advantage

    close(ledger_of(collate([rows[n] for n in order], dtype=dtype), recipe).advantage, found[torch.tensor(order)])


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES)
def test_only_sampled_tokens_of_scored_rollouts_have_an_advantage(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype
) -> None:
    found = ledger_of(collate(rows, dtype=dtype), recipe)

    assert found.advantage.dtype == dtype
    assert found.advantage.isfinite().all()
    for n, rollout in enumerate(rows):
        for t, sampled in enumerate(rollout.action_mask):
            counts = sampled and rollout.outcome is not None
            assert bool(found.mask[n, t]) is counts
            assert counts or float(found.advantage[n, t]) == 0


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES)
def test_taking_out_what_was_not_scored_or_not_sampled_changes_nothing(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype
) -> None:
    voting = [n for n, rollout in enumerate(rows) if rollout.outcome is not None and any(rollout.action_mask)]
    assume(voting)
    every = ledger_of(collate(rows, dtype=dtype), recipe).advantage
    some = ledger_of(collate([rows[n] for n in voting], dtype=dtype), recipe).advantage

    close(every[voting, : some.shape[1]], some)
    assert every[voting, some.shape[1] :].eq(0).all()


@every_recipe
@FEWER
@given(rows=ROWS, dtype=DTYPES, names=st.permutations([0, 1, 2, 3, 4]))
def test_a_group_by_any_other_name_is_the_same_group(
    recipe: Recipe, rows: list[Rollout], dtype: torch.dtype, names: list[int]
) -> None:
    batch = collate(rows, dtype=dtype)
    count = len(batch.group_names)
    shuffled = torch.tensor(names[:count]).argsort()
    renamed = replace(batch, groups=shuffled[batch.groups], group_names=tuple("vwxyz"[:count]))

    assert torch.equal(token_advantages(renamed, recipe), token_advantages(batch, recipe))


@pytest.mark.parametrize("recipe", [case for case in RECIPES if case.id not in OVER_THE_BATCH])
@FEWER
@given(rows=ROWS)
def test_groups_do_not_see_each_other(recipe: Recipe, rows: list[Rollout]) -> None:
    together = ledger_of(collate(rows, dtype=torch.float64), recipe).advantage

    for name in {rollout.group for rollout in rows}:
        places = [n for n, rollout in enumerate(rows) if rollout.group == name]
        alone = ledger_of(collate([rows[n] for n in places], dtype=torch.float64), recipe).advantage
        close(together[places, : alone.shape[1]], alone)


@every_recipe
@FEWER
@given(rows=ROWS)
def test_float32_is_float64_rounded(recipe: Recipe, rows: list[Rollout]) -> None:
    wide, narrow = (ledger_of(collate(rows, dtype=d), recipe).advantage for d in (torch.float64, torch.float32))

    close(narrow, wide.float())


@every_recipe
@FEWER
@given(rows=ROWS)
def test_apportioning_writes_into_nothing_it_was_given(recipe: Recipe, rows: list[Rollout]) -> None:
    batch = collate(rows)
    tensors = [getattr(batch, f.name) for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)]
    before = [tensor.clone() for tensor in tensors]

    ledger_of(batch, recipe)

    for now, then in zip(tensors, before, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0, equal_nan=True)


OUTCOMES = {"q1": (1.0, 3.0, 2.0), "q2": (5.0, 5.0), "q3": (7.0,)}


# The six outcomes as below: mean 23/6, squares 149/6 over 5.
WHITE = [(score - 23 / 6) / (149 / 30) ** 0.5 for score in (1, 5, 3, 7, 5, 2)]


def two_tokens_each() -> Rollouts:
    """Groups of 3, 2 and 1 in shuffled order: 1, 5, 3, 7, 5, 2; two lines each, worth 4 and 6 before them."""
    order = [("q1", 0), ("q2", 0), ("q1", 1), ("q3", 0), ("q2", 1), ("q1", 2)]
    return collate(
        [
            row("paa", ["?", "a\n", "b"], group=name, outcome=OUTCOMES[name][n], step_values=(4.0, 6.0))
            for name, n in order
        ]
    )


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        pytest.param("reinforce", [1, 5, 3, 7, 5, 2], [1, 5, 3, 7, 5, 2], id="reinforce"),
        pytest.param("dr_grpo", [-1, 0, 1, 0, 0, 0], [-1, 0, 1, 0, 0, 0], id="dr_grpo"),
        pytest.param("grpo", [-1, 0, 1, 0, 0, 0], [-1, 0, 1, 0, 0, 0], id="grpo, spread 1"),
        pytest.param("rloo", [-1.5, 0, 1.5, 0, 0, 0], [-1.5, 0, 1.5, 0, 0, 0], id="rloo"),
        pytest.param("reinforce_plus_plus", WHITE, WHITE, id="reinforce++"),
        pytest.param("vineppo", [2] * 6, [-5, -1, -3, 1, -1, -4], id="vineppo"),
    ],
)
def test_advantages_of_groups_of_three_two_and_one_by_hand(name: str, first: list[float], second: list[float]) -> None:
    found = apportion(two_tokens_each(), recipes.by_name(name)).advantage

    expected = torch.tensor([[0.0, a, b] for a, b in zip(first, second, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_grpo_is_in_units_of_the_spread_of_the_sample() -> None:
    # 0, 4, 8: mean 4, squares 16 + 0 + 16 over 2, so a spread of 4
    batch = collate([row("a", outcome=score) for score in (0.0, 4.0, 8.0)])

    assert apportion(batch, recipes.by_name("grpo")).advantage.tolist() == [[-1], [0], [1]]


def by_group(batch: Rollouts, number: Callable[[Tensor], float]) -> Tensor:
    """A number of the voting outcomes of each token's group [B, T]."""
    entries = torch.ones(len(batch), dtype=torch.float64)
    for group in batch.groups.unique():
        members = (batch.groups == group) & batch.votes
        if bool(members.any()):
            entries[batch.groups == group] = number(batch.outcome[members])
    return batch.of_tokens(entries)


@given(ROWS)
def test_sequence_level_recipes_differ_by_a_factor_of_the_group(rows: list[Rollout]) -> None:
    batch = collate([replace(rollout, step_rewards=None) for rollout in rows], dtype=torch.float64)
    reinforce, dr_grpo, grpo, rloo = (
        ledger_of(batch, recipes.by_name(name)).advantage for name in ("reinforce", "dr_grpo", "grpo", "rloo")
    )
    counted = batch.action_mask & batch.of_tokens(batch.votes)
    size = by_group(batch, lambda outcomes: float(len(outcomes)))
    std = by_group(batch, lambda outcomes: float(outcomes.std()) if len(outcomes.unique()) > 1 else float("inf"))

    close(reinforce, torch.where(counted, batch.of_tokens(batch.outcome), 0))
    close(dr_grpo, torch.where(counted, reinforce - by_group(batch, lambda outcomes: float(outcomes.mean())), 0))
    close(grpo, dr_grpo / std)
    close(rloo, torch.where(size > 1, size / (size - 1).clamp(min=1), 0) * dr_grpo)


@given(ROWS)
def test_vineppo_of_one_line_worth_the_group_mean_is_dr_grpo(rows: list[Rollout]) -> None:
    rows = [replace(rollout, step_rewards=None, text="x" * 99, turns=[0] * len(rollout.tokens)) for rollout in rows]
    batch = collate(rows, dtype=torch.float64)
    mean = ledger_of(batch, recipes.by_name("dr_grpo")).value[:, 0].tolist()
    worth = [None if row.step_values is None else (mean[n],) for n, row in enumerate(rows)]

    vineppo = ledger_of(replace(batch, step_values=Scores.of(worth)), recipes.by_name("vineppo"))

    close(vineppo.advantage, ledger_of(batch, recipes.by_name("dr_grpo")).advantage)


def three_lines() -> list[Rollout]:
    """Two answers of one group: step rewards .2 .8 and .6, two lines and one."""
    return [
        row("aaaaaa", ["a", "b", "c\n", "d", "e", "f"], outcome=0.0, step_rewards=(0.2, 0.8)),
        row("aaaa", ["a", "b", "c", "d"], outcome=0.0, step_rewards=(0.6,)),
    ]


def test_process_supervision_gives_a_token_what_its_line_and_all_later_ones_are_over_the_mean() -> None:
    found = apportion(collate(three_lines(), dtype=torch.float64), recipes.by_name("grpo_process"))

    expected = torch.tensor([[-0.218218] * 3 + [0.872872] * 3, [0.218218] * 4 + [0] * 2], dtype=torch.float64)
    torch.testing.assert_close(found.advantage, expected, rtol=0, atol=5e-7)


@given(ROWS)
def test_process_supervision_of_answers_of_one_line_is_grpo(rows: list[Rollout]) -> None:
    rows = [replace(rollout, step_rewards=None, text="x" * 99, turns=[0] * len(rollout.tokens)) for rollout in rows]
    batch = collate(rows, dtype=torch.float64)

    found = ledger_of(batch, recipes.by_name("grpo_process")).advantage

    close(found, ledger_of(batch, recipes.by_name("grpo")).advantage)


def test_step_credit_is_louder_in_answers_that_stand_out_and_keeps_its_sign() -> None:
    # whole credits 2 and -2 of one group: both one over root two of a deviation out
    rows = [
        row("aa", ["a\n", "b"], outcome=3.0, step_values=(1.0, 4.0)),
        row("aa", ["a\n", "b"], outcome=-1.0, step_values=(1.0, 2.0)),
    ]

    found = apportion(collate(rows, dtype=torch.float64), recipes.by_name("grpo_step")).advantage

    torch.testing.assert_close(found, 0.5**0.5 * torch.tensor([[3.0, -1.0], [1.0, -3.0]], dtype=torch.float64))


def test_ppo_is_whitened_generalised_advantages_of_every_token() -> None:
    # one answer, one tool token: delta .25, .5; credit .25 + .95 * .5, .5
    batch = collate([row("ata", outcome=1.0, step_values=(0.25, 0.5))], dtype=torch.float64)

    found = apportion(batch, recipes.by_name("ppo"))

    torch.testing.assert_close(found.credit, torch.tensor([[0.725, 0.5]], dtype=torch.float64))
    torch.testing.assert_close(found.advantage, 0.5**0.5 * torch.tensor([[1.0, 0, -1.0]], dtype=torch.float64))


def test_ppo_takes_a_cut_for_no_failure() -> None:
    # as above, but cut off where .75 was still expected: delta .25, .5 + .75
    batch = collate([row("aa", outcome=1.0, step_values=(0.25, 0.5), ended=False, end_value=0.75)], dtype=torch.float64)

    found = apportion(batch, recipes.by_name("ppo")).require_laws()

    torch.testing.assert_close(found.credit, torch.tensor([[0.25 + 0.95 * 1.25, 1.25]], dtype=torch.float64))
    with pytest.raises(InputError, match="rollout 0 was cut off and has no end_value"):
        apportion(replace(batch, end_values=None), recipes.by_name("ppo"))


def test_every_recipe_carries_the_name_it_is_found_by() -> None:
    assert {name: recipes.by_name(name).name for name in recipes.BY_NAME} == {name: name for name in recipes.BY_NAME}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param("gppo", "there is no recipe 'gppo'.*did you mean.*grpo", id="a slip"),
        pytest.param("", "there is no recipe ''.*vineppo", id="nothing like it"),
    ],
)
def test_an_unknown_recipe_is_refused_with_the_known_ones(asked: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipes.by_name(asked)
