"""Scores on the token grid: what is taken, what is refused, what is moved."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts, collate, pack
from apportion.steps.given import moved_to_actions, rewards_of_tokens, values_of_tokens
from batches import INF, NAN, batch_of, random_rows, recut


def grid_of(batch: Rollouts, draw: st.DataObject) -> Tensor:
    numbers = st.lists(st.integers(-8, 8), min_size=batch.tokens.numel(), max_size=batch.tokens.numel())
    return torch.tensor(draw.draw(numbers), dtype=torch.float64).view_as(batch.tokens) / 4


def test_rewards_are_taken_from_sampled_tokens_rollout_by_rollout() -> None:
    packed = pack(batch_of("paat", "t", "a"), 6)

    found = rewards_of_tokens(packed, torch.tensor([[0, 1.0, 2.0, 0, 0, 4.0]]))

    assert found.rows() == [(1.0, 2.0), (), (4.0,)]


def test_a_reward_on_a_token_that_was_not_sampled_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"row 1, position 2: 0.5 is a reward on a token that was not sampled"):
        rewards_of_tokens(batch_of("aaa", "aat"), torch.tensor([[0, 0, 0], [0, 0, 0.5]]))


@pytest.mark.parametrize("entry", [pytest.param(NAN, id="nan"), pytest.param(INF, id="inf")])
def test_what_is_no_number_is_refused_where_it_is_used_and_nowhere_else(entry: float) -> None:
    batch = batch_of("ata")

    assert values_of_tokens(batch, torch.tensor([[1.0, entry, 2.0]])).rows() == [(1.0, 2.0)]
    for take in (values_of_tokens, rewards_of_tokens):
        with pytest.raises(InputError, match=f"row 0, position 2: {entry} stands on a sampled token"):
            take(batch, torch.tensor([[0.0, 0.0, entry]]))
    with pytest.raises(InputError, match=f"row 0, position 1: {entry} is a reward on a token that was not"):
        rewards_of_tokens(batch, torch.tensor([[0.0, entry, 0.0]]))


def test_astray_rewards_move_to_the_action_before_them_or_else_the_first() -> None:
    # p: before any action; t: behind the first one; and another rollout behind it in the row
    packed = pack(batch_of("patat", "ta"), 7)

    found = moved_to_actions(packed, torch.tensor([[1.0, 2, 4, 8, 16, 32, 64]]))

    assert found.tolist() == [[0, 7, 0, 24, 0, 0, 96]]
    assert moved_to_actions(pack(batch_of("at", "a"), 3), torch.tensor([[0, 1.0, 2]])).tolist() == [[1, 0, 2]]


def test_a_reward_that_no_action_can_take_is_refused() -> None:
    with pytest.raises(InputError, match=r"row 1, position 0: 1.0 is a reward with no action of its rollout"):
        moved_to_actions(batch_of("aa", "p"), torch.tensor([[0, 0], [1.0, 0]]))
    with pytest.raises(InputError, match=r"row 1, position 1: 2.0 is a reward with no action"):
        moved_to_actions(batch_of("aa", "a"), torch.tensor([[0, 0], [0, 2.0]]))


@given(random_rows(), st.data())
def test_moving_keeps_every_rollouts_sum_and_leaves_nothing_astray(rows: list[Rollout], data: st.DataObject) -> None:
    batch = collate(rows)
    able = batch.valid_mask & batch.of_tokens(batch.action_counts > 0)
    rewards = torch.where(able, grid_of(batch, data), 0)

    moved = moved_to_actions(batch, rewards)

    owner = torch.where(batch.valid_mask, batch.rollout_of, len(batch)).flatten()
    sums = [torch.zeros(len(batch) + 1).double().index_add(0, owner, grid.flatten()) for grid in (rewards, moved)]
    assert torch.equal(*sums)
    assert [len(row or ()) for row in rewards_of_tokens(batch, moved).rows()] == batch.action_counts.tolist()
    assert torch.equal(moved_to_actions(batch, moved), moved)


@given(random_rows(), st.data(), st.integers(1, 7))
def test_rewards_move_alike_however_the_rows_are_laid(rows: list[Rollout], data: st.DataObject, width: int) -> None:
    batch = collate(rows)
    other = recut(batch, width)
    rewards = torch.where(batch.valid_mask & batch.of_tokens(batch.action_counts > 0), grid_of(batch, data), 0)
    there = torch.zeros(other.tokens.shape, dtype=torch.float64)
    there[other.valid_mask] = rewards[batch.valid_mask]

    found = moved_to_actions(other, there)

    assert torch.equal(found[other.valid_mask], moved_to_actions(batch, rewards)[batch.valid_mask])
