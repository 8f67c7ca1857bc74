"""What holds for any batch: the library's own credit lints clean, and what stands behind the mask has no say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import credit, normalise, recipes
from apportion.ledger import Recipe
from apportion.lint import lint
from apportion.lint.names import whole_answer_recipe
from apportion.rollouts import Rollout, collate, pack
from apportion.steps import splitters, spread
from apportion.values import baselines
from batches import FEWER, FLOATS, SIXTEENTHS, ledger_of, random_rows
from lint.library import columns_of, poisoned

ROWS = random_rows().filter(lambda rows: any(row.tokens for row in rows))
MIXED = random_rows(st.one_of(SIXTEENTHS, FLOATS)).filter(lambda rows: any(row.tokens for row in rows))
WHOLE = [name for name in recipes.BY_NAME if whole_answer_recipe(name) is not None]
DTYPES = st.sampled_from([torch.float32, torch.float64])


def token_recipe(gamma: float, lam: float, rescale: normalise.Normalise) -> Recipe:
    return Recipe(
        name="gae",
        split=splitters.every_token,
        value=baselines.given,
        credit=credit.gae_with(gamma=gamma, lam=lam),
        normalise=rescale,
        spread=spread.repeat,
    )


def laid_out(rows: list[Rollout], width: int, dtype: torch.dtype):
    """Some rollouts a row, so that rows are packed as often as not."""
    batch = collate(rows, dtype=dtype)
    longest = max(1, *(len(row.tokens) for row in rows), 1)
    return pack(batch, max(width, longest))


def broken(columns: dict) -> list[str]:
    return [str(found) for found in lint(columns) if found.verdict == "broken"]


@pytest.mark.parametrize("rescale", [normalise.none, normalise.whiten], ids=["raw", "whitened"])
@settings(max_examples=25)
@given(rows=ROWS, width=st.integers(1, 30), dtype=DTYPES, data=st.data())
def test_token_credit_of_the_library_is_clean(rescale, rows, width, dtype, data):
    gamma, lam = data.draw(st.sampled_from([1.0, 0.5, 0.875])), data.draw(st.sampled_from([1.0, 0.0, 0.75]))
    rows = [replace(row, ended=True) for row in rows]
    ledger = ledger_of(laid_out(rows, width, dtype), token_recipe(gamma, lam, rescale))
    columns = columns_of(ledger) | {"gamma": gamma, "lam": lam}
    assert broken(columns) == []
    assert broken(poisoned(columns)) == []


@FEWER
@given(rows=MIXED, width=st.integers(1, 30), dtype=DTYPES)
def test_the_recipes_of_tokens_are_clean(rows, width, dtype):
    rows = [replace(row, ended=True, step_rewards=None) for row in rows]
    batch = laid_out(rows, width, dtype)
    critic = {"gamma": 1.0, "lam": 0.95, "recipe": "ppo"}
    assert broken(columns_of(ledger_of(batch, recipes.by_name("ppo"))) | critic) == []
    to_go = {"gamma": 1.0, "recipe": "reinforce_plus_plus"}
    assert broken(columns_of(ledger_of(batch, recipes.by_name("reinforce_plus_plus"))) | to_go) == []


@pytest.mark.parametrize("name", WHOLE)
@FEWER
@given(rows=MIXED, width=st.integers(1, 30), dtype=DTYPES)
def test_whole_answer_credit_of_the_library_is_clean(name, rows, width, dtype):
    rows = [replace(row, ended=True, step_rewards=None) for row in rows]
    columns = columns_of(ledger_of(laid_out(rows, width, dtype), recipes.by_name(name))) | {"recipe": name}
    assert broken(columns) == []
    assert broken(poisoned(columns)) == []


@FEWER
@given(rows=ROWS, width=st.integers(1, 30), data=st.data())
def test_garbage_behind_the_mask_changes_no_finding(rows, width, data):
    rows = [replace(row, ended=True) for row in rows]
    ledger = ledger_of(laid_out(rows, width, torch.float64), token_recipe(1.0, 0.75, normalise.none))
    columns = columns_of(ledger) | {"gamma": 1.0, "lam": 0.75}
    # wrong at one sampled token, so that there is something to find
    counted = torch.where(columns["action_mask"] & ~columns["rewards"].isnan(), 1.0, 0.0)
    if counted.any():
        place = data.draw(st.sampled_from(counted.flatten().nonzero().squeeze(1).tolist()))
        columns["advantages"] = (
            columns["advantages"]
            .flatten()
            .index_add(0, torch.tensor([place]), torch.tensor([0.5]).double())
            .view(counted.shape)
        )
    assert [str(found) for found in lint(poisoned(columns))] == [str(found) for found in lint(columns)]
