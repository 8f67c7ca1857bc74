"""The map between tokens and the dense step grid."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool
from torch import Tensor

from apportion import compiled
from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts, Scores, collate, pack
from apportion.steps.grid import StepMap, added, first_of, number_steps, number_steps_at, number_steps_ending
from batches import FEWER, INF, NAN, batch_of, random_rows, recut, row


def three_rollouts() -> Rollouts:
    """Steps of 2 and 2 tokens round a tool gap; of 1 and 1; of none."""
    return batch_of("paataa", "aata", "pp")


def a_map() -> StepMap:
    starts = torch.tensor([[1, 0, 0, 1, 1, 0], [0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]).bool()
    return number_steps(three_rollouts(), starts)


def test_every_sampled_token_has_the_number_of_its_step_and_all_others_none() -> None:
    steps = a_map()

    assert steps.step_of.tolist() == [[-1, 0, 0, -1, 1, 1], [0, 0, -1, 1, -1, -1], [-1] * 6]
    assert steps.counts.tolist() == [2, 2, 0]
    assert steps.width == 2
    assert steps.mask.tolist() == [[True, True], [True, True], [False, False]]
    assert steps.lengths.tolist() == [[2, 2], [2, 1], [0, 0]]


def test_the_first_sampled_token_of_a_rollout_starts_a_step_wherever_it_stands() -> None:
    steps = number_steps(pack(batch_of("paa", "a", "tat"), 7), torch.zeros(1, 7).bool())

    assert steps.step_of.tolist() == [[-1, 0, 0, 0, -1, 0, -1]]
    assert steps.counts.tolist() == [1, 1, 1]
    assert steps.cell.tolist() == [[-1, 0, 0, 1, -1, 2, -1]]


def test_a_start_on_a_token_that_was_not_sampled_starts_nothing() -> None:
    steps = number_steps(batch_of("ata"), torch.tensor([[True, True, False]]))

    assert steps.step_of.tolist() == [[0, -1, 0]]


def test_the_marks_of_starts_are_not_written_into() -> None:
    starts = torch.zeros(1, 2).bool()

    number_steps(batch_of("aa"), starts)

    assert starts.tolist() == [[False, False]]


def test_a_batch_without_any_action_still_has_one_column() -> None:
    steps = number_steps(batch_of("pp", "p"), torch.ones(2, 2).bool())

    assert steps.width == 1
    assert steps.mask.tolist() == [[False], [False]]
    assert steps.sum(torch.ones(2, 2)).tolist() == [[0], [0]]
    assert steps.first(torch.ones(2, 2)).tolist() == [[0], [0]]
    assert steps.last_tokens().any().item() is False


def test_tokens_are_summed_by_step_whatever_stands_between_them() -> None:
    tokens = torch.tensor([[NAN, 1, 2, INF, 4, 8], [16, 32, NAN, 64, NAN, NAN], [NAN, INF, NAN, NAN, NAN, NAN]])

    assert a_map().sum(tokens).tolist() == [[3, 12], [48, 64], [0, 0]]


def test_the_first_token_of_a_step_is_taken_whatever_stands_before_it() -> None:
    tokens = torch.tensor([[NAN, 1, 2, INF, 4, 8], [16, 32, NAN, 64, NAN, NAN], [NAN, INF, NAN, NAN, NAN, NAN]])

    assert a_map().first(tokens).tolist() == [[1, 4], [16, 64], [0, 0]]


def test_every_sampled_token_gets_the_entry_of_its_step() -> None:
    grid = torch.tensor([[1.0, 2], [3, 4], [NAN, NAN]])

    assert a_map().to_tokens(grid).tolist() == [[0, 1, 1, 0, 2, 2], [3, 3, 0, 4, 0, 0], [0] * 6]


def test_the_last_token_of_every_step_is_marked() -> None:
    expected = [[0, 0, 1, 0, 0, 1], [0, 1, 0, 1, 0, 0], [0] * 6]

    assert a_map().last_tokens().int().tolist() == expected


@given(random_rows(), st.data())
def test_the_maps_between_grids_undo_each_other(rows: list[Rollout], data: st.DataObject) -> None:
    batch = collate(rows)
    size = batch.tokens.numel()
    marks = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    steps = number_steps(batch, torch.tensor(marks).view_as(batch.tokens))
    grid = torch.where(steps.mask, torch.arange(1.0, steps.mask.numel() + 1).view_as(steps.mask), 0)

    assert torch.equal(steps.first(steps.to_tokens(grid)), grid)
    assert torch.equal(steps.sum(steps.to_tokens(grid)), grid * steps.lengths)
    assert torch.equal(steps.sum(steps.last_tokens().float()), steps.mask.float())
    assert torch.equal(steps.lengths.sum(1).long(), batch.action_counts)
    assert torch.equal(steps.step_of >= 0, batch.action_mask)


@given(random_rows(), st.integers(1, 7))
def test_the_step_grid_does_not_depend_on_how_the_tokens_are_laid_out(rows: list[Rollout], width: int) -> None:
    batch = collate(rows)
    cut = recut(batch, width)
    padded = number_steps(batch, batch.tokens % 2 == 0)
    packed = number_steps(cut, cut.tokens % 2 == 0)

    assert torch.equal(padded.counts, packed.counts)
    assert torch.equal(padded.cell[batch.valid_mask], packed.cell[cut.valid_mask])
    assert torch.equal(padded.first(batch.tokens.float()), packed.first(cut.tokens.float()))


STEP_ENDS_1_AND_3 = torch.tensor([[True, False, True, False]])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param((0.25, 0.75), [[0.25, 0.75]], id="one a step"),
        pytest.param((0.0, 0.5, 0.25, 0.25), [[0.5, 0.5]], id="one a sampled token"),
        pytest.param(None, [[0.0, 0.0]], id="none"),
    ],
)
def test_given_scores_are_laid_on_steps(scores: tuple[float, ...] | None, expected: list[list[float]]) -> None:
    steps = number_steps(batch_of("aaaa"), STEP_ENDS_1_AND_3)

    assert steps.place(Scores.of([scores]), "scores", added).tolist() == expected


def test_scores_that_fit_neither_steps_nor_tokens_are_refused_with_all_three_counts() -> None:
    steps = number_steps(batch_of("aaaa", "aaaa"), STEP_ENDS_1_AND_3.repeat(2, 1))

    with pytest.raises(InputError, match="rollout 1: 3 scores came, which fits neither its 2 steps nor its 4 sampled"):
        steps.place(Scores.of([None, (0.1, 0.2, 0.3)]), "scores", added)


def test_token_scores_are_merged_step_by_step_in_rollouts_of_any_length() -> None:
    steps = number_steps(batch_of("aata", "aaa", "p"), torch.tensor([[1, 0, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]]).bool())
    scores = Scores.of([(1.0, 2.0, 4.0), (8.0, 16.0, 32.0), ()])

    assert steps.place(scores, "scores", added).tolist() == [[3, 4, 0], [8, 16, 32], [0, 0, 0]]
    assert steps.place(scores, "scores", first_of).tolist() == [[1, 4, 0], [8, 16, 32], [0, 0, 0]]


def test_a_value_before_the_environment_spoke_stands_just_behind_the_step_before() -> None:
    # rollouts of two turns in one row: a | tt | a a, then t | a
    batch = pack(batch_of("attaa", "ta"), 7)
    steps = number_steps(batch, batch.action_mask)
    values = torch.tensor([[1.0, 2, 3, 4, 5, 6, 7]])

    assert steps.first(values).tolist() == [[1, 4, 5], [7, 0, 0]]
    assert steps.resumed(values, batch).tolist() == [[1, 2, 5], [7, 0, 0]]


@given(random_rows())
def test_without_environment_tokens_nothing_is_spoken_in_between(rows: list[Rollout]) -> None:
    batch = collate([Rollout([1] * sum(row.action_mask), [True] * sum(row.action_mask), row.group) for row in rows])
    steps = number_steps(batch, batch.tokens % 2 == 0)
    values = torch.arange(batch.tokens.numel(), dtype=torch.float64).view_as(batch.tokens)

    assert torch.equal(steps.resumed(values, batch), steps.first(values))


def marked(batch: Rollouts, data: st.DataObject) -> Bool[Tensor, "B T"]:
    """Marks on tokens of all kinds, a few or many."""
    some = st.lists(st.booleans(), min_size=batch.tokens.numel(), max_size=batch.tokens.numel())
    return torch.tensor(data.draw(some), dtype=torch.bool).view_as(batch.tokens)


@FEWER
@given(rows=random_rows(), data=st.data(), width=st.integers(1, 9))
def test_steps_numbered_by_their_places_are_those_numbered_by_marks(
    rows: list[Rollout], data: st.DataObject, width: int
) -> None:
    batch = recut(collate(rows), width)
    starts = marked(batch, data) & batch.action_mask

    found = number_steps_at(batch, starts.flatten().nonzero().flatten().flip(0))

    expected = number_steps(batch, starts)
    assert torch.equal(found.number, expected.number)
    assert torch.equal(found.counts, expected.counts)


@FEWER
@given(rows=random_rows(), data=st.data(), width=st.integers(1, 9))
def test_compiled_loops_number_and_look_up_as_sums_do(rows: list[Rollout], data: st.DataObject, width: int) -> None:
    pytest.importorskip("numba")
    batch = recut(collate(rows), width)
    marks = marked(batch, data)

    for make in (
        lambda: number_steps(batch, marks),
        lambda: number_steps_ending(batch, marks),
        lambda: number_steps_ending(batch, batch.tokens, 3),
    ):
        expected = make()
        credit = torch.randn(expected.mask.shape, dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "LEAST", 0)
            found = make()
            tokens = found.to_tokens(credit)

        assert torch.equal(found.number, expected.number)
        assert torch.equal(found.counts, expected.counts)
        assert torch.equal(tokens, expected.to_tokens(credit))


def test_a_turn_ends_with_its_last_sampled_token_whatever_lies_within() -> None:
    # one turn round a tool token; then two turns, and the second rollout's first has the number of the one before it
    batch = collate([row("ata", turns=[0, 0, 0]), row("ata", turns=[0, 0, 1])])

    steps = number_steps_ending(batch, torch.zeros(2, 3).bool())

    assert steps.number.tolist() == [[1, 0, 1], [2, 0, 3]]
    assert steps.counts.tolist() == [1, 2]


@given(random_rows(), st.data())
def test_counting_where_steps_end_is_counting_where_the_next_ones_start(
    rows: list[Rollout], data: st.DataObject
) -> None:
    batch = collate(rows)
    ends = marked(batch, data)
    starts, steps = torch.zeros_like(ends), number_steps_ending(batch, ends)
    for n in range(len(batch)):
        places = batch.action_mask[n].nonzero().flatten().tolist()
        for before, now in pairwise(places):
            starts[n, now] = ends[n, before] or batch.turns[n, before] != batch.turns[n, now]

    expected = number_steps(batch, starts)

    assert torch.equal(steps.number, expected.number)
    assert torch.equal(steps.counts, expected.counts)


@given(random_rows())
def test_scores_a_token_are_placed_as_the_sum_over_tokens_is(rows: list[Rollout]) -> None:
    batch = collate(rows)
    steps = number_steps(batch, batch.tokens % 3 == 0)
    tokens = torch.zeros(batch.tokens.shape, dtype=torch.float64)
    given_scores = batch.step_rewards or Scores.of([None] * len(batch))
    for n, scores in enumerate(given_scores.rows()):
        if scores is not None:
            tokens[batch.action_mask & (batch.rollout_of == n)] = torch.tensor(scores, dtype=torch.float64)

    assert torch.equal(steps.place(given_scores, "step rewards", added), steps.sum(tokens))
