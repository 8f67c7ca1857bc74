"""Splitters that look at ids and turns alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate, pack
from apportion.steps import splitters
from batches import batch_of, random_rows, row


def steps_of(rollout: Rollout, splitter: splitters.Splitter) -> list[int]:
    step_of: list[int] = splitter(collate([rollout])).step_of[0].tolist()
    return step_of


def test_the_whole_answer_is_one_step_over_all_turns() -> None:
    assert splitters.whole(batch_of("paataa", "a")).step_of.tolist() == [[-1, 0, 0, -1, 0, 0], [0, -1, -1, -1, -1, -1]]


def test_every_sampled_token_is_a_step_and_no_tool_token_is() -> None:
    expected = [[-1, 0, 1, -1, 2, 3], [0, -1, -1, -1, -1, -1]]

    assert splitters.every_token(batch_of("paataa", "a")).step_of.tolist() == expected


def test_a_turn_is_a_step() -> None:
    assert splitters.turns(batch_of("paataa", "a", "pp")).step_of.tolist() == [
        [-1, 0, 0, -1, 1, 1],
        [0, -1, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1, -1],
    ]


def test_tool_tokens_inside_a_turn_do_not_end_it() -> None:
    assert steps_of(row("ataata", turns=[0, 0, 0, 1, 1, 1]), splitters.turns) == [0, -1, 0, 1, -1, 1]


def test_turns_of_two_rollouts_are_two_even_where_they_have_the_same_number_and_touch() -> None:
    packed = pack(collate([row("aa", turns=[0, 0]), row("aaa", turns=[0, 0, 0])]), 5)

    assert splitters.turns(packed).counts.tolist() == [1, 1]
    assert splitters.chunks(2)(packed).step_of.tolist() == [[0, 0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("picture", "turns", "steps"),
    [
        pytest.param("aaaaa", [0] * 5, [0, 0, 1, 1, 2], id="the last chunk may be shorter"),
        pytest.param("aaaa", [0] * 4, [0, 0, 1, 1], id="no empty chunk at the end"),
        pytest.param("paaatta", None, [-1, 0, 0, 1, -1, -1, 2], id="a new turn starts a new chunk"),
        pytest.param("ataaat", [0] * 6, [0, -1, 0, 1, 1, -1], id="tool tokens of the turn are not counted"),
        pytest.param("aaa", [0, 1, 1], [0, 1, 1], id="turns without tool tokens between them"),
    ],
)
def test_a_chunk_is_a_number_of_sampled_tokens_of_a_turn(
    picture: str, turns: list[int] | None, steps: list[int]
) -> None:
    assert steps_of(row(picture, turns=turns), splitters.chunks(2)) == steps


def test_chunks_of_a_packed_batch_are_counted_by_rollout() -> None:
    packed = pack(batch_of("paaa", "aaaaa", "p", "a"), 5)

    assert splitters.chunks(2)(packed).step_of.tolist() == [[-1, 0, 0, 1, -1], [0, 0, 1, 1, 2], [-1, 0, -1, -1, -1]]


def test_a_chunk_has_200_tokens_unless_another_size_is_named() -> None:
    assert splitters.chunks()(batch_of("a" * 401)).lengths.tolist() == [[200, 200, 1]]


@pytest.mark.parametrize("size", [pytest.param(0, id="none"), pytest.param(-1, id="negative")])
def test_a_chunk_without_a_token_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 token, {size} were asked for"):
        splitters.chunks(size)


def test_a_marker_token_ends_its_step() -> None:
    batch = collate([row("paaaa"), row("aaa"), row("aaaa")])  # token ids 0, 1, 2 ...

    assert splitters.marker(2)(batch).step_of.tolist() == [[-1, 0, 0, 1, 1], [0, 0, 0, -1, -1], [0, 0, 0, 1, -1]]


def test_a_marker_that_was_not_sampled_ends_nothing_but_a_new_turn_does() -> None:
    one_turn = row("ata", turns=[0, 0, 0])

    assert steps_of(one_turn, splitters.marker(1)) == [0, -1, 0]
    assert steps_of(row("ata"), splitters.marker(1)) == [0, -1, 1]


@given(random_rows())
def test_a_marker_that_never_comes_cuts_between_turns_alone(rows: list[Rollout]) -> None:
    batch = collate(rows)
    turns_sampled_in = [
        len(set(batch.turns[batch.action_mask & (batch.rollout_of == n)].tolist())) for n in range(len(batch))
    ]

    assert splitters.marker(-7)(batch).counts.tolist() == turns_sampled_in
    assert torch.equal(splitters.marker(-7)(batch).step_of, splitters.turns(batch).step_of)


@given(random_rows())
def test_chunks_of_one_token_are_tokens_and_chunks_without_end_are_turns(rows: list[Rollout]) -> None:
    batch = collate(rows)

    assert torch.equal(splitters.chunks(1)(batch).step_of, splitters.every_token(batch).step_of)
    assert torch.equal(splitters.chunks(10**6)(batch).step_of, splitters.turns(batch).step_of)


@given(random_rows())
def test_in_a_single_turn_turns_and_endless_chunks_are_the_whole_answer(rows: list[Rollout]) -> None:
    batch = collate([row("".join("a" if a else "p" for a in r.action_mask), turns=[0] * len(r.tokens)) for r in rows])

    for splitter in (splitters.turns, splitters.chunks(10**6)):
        assert torch.equal(splitter(batch).step_of, splitters.whole(batch).step_of)


@given(random_rows(), st.integers(1, 5))
def test_all_chunks_of_a_turn_but_its_last_are_full(rows: list[Rollout], size: int) -> None:
    batch = collate(rows)
    steps = splitters.chunks(size)(batch)
    ends = steps.last_tokens()
    turn_ends = splitters.turns(batch).last_tokens()
    full = steps.to_tokens(steps.lengths)[ends & ~turn_ends]

    assert bool((full == size).all())
    assert bool((steps.lengths <= size).all())
    assert bool((ends | ~turn_ends).all())
