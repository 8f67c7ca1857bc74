"""What holds for every splitter."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.steps.sizes import at_most
from apportion.steps.splitters import Splitter
from batches import FEWER, poisoned, random_rows, recut

ACROSS_TURNS = [
    pytest.param(splitters.whole, id="whole"),
    pytest.param(at_most(splitters.whole, 3), id="whole, at most 3"),
]
WITHIN_TURNS = [
    pytest.param(splitters.every_token, id="every token"),
    pytest.param(splitters.turns, id="turns"),
    pytest.param(splitters.chunks(2), id="chunks of 2"),
    pytest.param(splitters.chunks(3), id="chunks of 3"),
    pytest.param(splitters.marker(2), id="marker"),
    pytest.param(splitters.lines, id="lines"),
    pytest.param(splitters.sentences, id="sentences"),
    pytest.param(splitters.after("="), id="after"),
    pytest.param(splitters.key_tokens("="), id="key tokens"),
    pytest.param(splitters.key_tokens([1, 4]), id="key token ids"),
    pytest.param(at_most(splitters.lines, 2), id="lines, at most 2"),
]


@pytest.mark.parametrize("splitter", [*ACROSS_TURNS, *WITHIN_TURNS])
@FEWER
@given(random_rows())
def test_the_steps_of_a_rollout_follow_each_other_and_hold_every_sampled_token(
    splitter: Splitter, rows: list[Rollout]
) -> None:
    batch = collate(rows)
    steps = splitter(batch)

    assert torch.equal(steps.step_of >= 0, batch.action_mask)
    for n in range(len(batch)):
        own = steps.step_of[batch.action_mask & (batch.rollout_of == n)]
        assert own.unique().tolist() == list(range(int(steps.counts[n])))
        assert bool((own.diff() >= 0).all())


@pytest.mark.parametrize("splitter", WITHIN_TURNS)
@FEWER
@given(random_rows())
def test_no_step_joins_two_turns(splitter: Splitter, rows: list[Rollout]) -> None:
    batch = collate(rows)
    cell = splitter(batch).cell[batch.action_mask]
    turn = (1000 * batch.rollout_of + batch.turns)[batch.action_mask]

    assert len(set(zip(cell.tolist(), turn.tolist(), strict=True))) == len(set(cell.tolist()))


@pytest.mark.parametrize("splitter", [*ACROSS_TURNS, *WITHIN_TURNS])
@FEWER
@given(random_rows(), st.integers(1, 7), st.integers(0, 3))
def test_steps_do_not_depend_on_padding_or_packing_or_what_stands_there(
    splitter: Splitter, rows: list[Rollout], width: int, extra: int
) -> None:
    batch = collate(rows)
    garbled, cut = poisoned(batch, extra), recut(batch, width)
    steps, in_garbage, in_cut = splitter(batch), splitter(garbled), splitter(cut)

    assert torch.equal(steps.counts, in_garbage.counts)
    assert torch.equal(steps.cell[batch.action_mask], in_garbage.cell[garbled.action_mask])
    assert torch.equal(steps.counts, in_cut.counts)
    assert torch.equal(steps.cell[batch.valid_mask], in_cut.cell[cut.valid_mask])


@pytest.mark.parametrize("splitter", [*ACROSS_TURNS, *WITHIN_TURNS])
@FEWER
@given(random_rows())
def test_a_splitter_writes_into_nothing(splitter: Splitter, rows: list[Rollout]) -> None:
    batch = collate(rows)
    assert batch.offsets is not None
    before = [grid.clone() for grid in (batch.tokens, batch.action_mask, batch.turns, batch.offsets)]
    splitter(batch)

    for grid, copy in zip((batch.tokens, batch.action_mask, batch.turns, batch.offsets), before, strict=True):
        assert torch.equal(grid, copy)


@given(random_rows())
def test_finer_splitters_cut_wherever_coarser_ones_do(rows: list[Rollout]) -> None:
    batch = collate(rows)
    from_coarse_to_fine = (
        splitters.whole,
        splitters.turns,
        splitters.lines,
        splitters.sentences,
        at_most(splitters.sentences, 2),
        splitters.every_token,
    )
    ends = [splitter(batch).last_tokens() for splitter in from_coarse_to_fine]

    for coarse, fine in pairwise(ends):
        assert bool((fine | ~coarse).all())
    assert torch.equal(ends[-1], batch.action_mask)
    assert torch.equal(splitters.whole(batch).counts, (batch.action_counts > 0).long())


def test_splitters_are_found_by_their_own_names() -> None:
    assert {name: splitter.__name__ for name, splitter in splitters.BY_NAME.items()} == {
        name: name for name in splitters.BY_NAME
    }
    assert list(splitters.BY_NAME) == ["whole", "every_token", "lines", "sentences", "turns"]
