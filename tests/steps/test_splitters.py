"""Splitters: where an answer is cut."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from batches import batch_of, random_rows, recut, row

PROSE = row("aaaaaaaa", ["Add", " 2", ".\n\n", "So", " 5", ".\n\n", "Done", ""])
# The check mark is one character of two tokens.
CHECK = Rollout(
    tokens=range(6),
    action_mask=[True] * 6,
    group="g",
    text="ok ✓\n\nend",
    offsets=[(0, 2), (2, 3), (3, 4), (3, 4), (4, 6), (6, 9)],
)


def steps_of(rollout: Rollout, splitter: splitters.Splitter) -> list[int]:
    step_of: list[int] = splitter(collate([rollout])).step_of[0].tolist()
    return step_of


def test_the_whole_answer_is_one_step_over_all_turns() -> None:
    assert splitters.whole(batch_of("paataa", "a")).step_of.tolist() == [[-1, 0, 0, -1, 0, 0], [0, -1, -1, -1, -1, -1]]


def test_every_sampled_token_is_a_step_and_no_tool_token_is() -> None:
    expected = [[-1, 0, 1, -1, 2, 3], [0, -1, -1, -1, -1, -1]]

    assert splitters.every_token(batch_of("paataa", "a")).step_of.tolist() == expected


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        pytest.param(["a", "\n", "b"], [0, 0, 1], id="the newline ends its line"),
        pytest.param(["a\n", "b\n", "c"], [0, 1, 2], id="newline glued to a token"),
        pytest.param(["a", "\nb", "c"], [0, 1, 1], id="a token belongs where its last character stands"),
        pytest.param(["a", "\n", "\n", "\n", "b"], [0, 0, 0, 0, 1], id="blank lines belong to the line above"),
        pytest.param(["a", "\n", "  \n", "b"], [0, 0, 0, 1], id="a line of spaces is blank"),
        pytest.param(["a\n", "b\n", ""], [0, 1, 1], id="an end token without text starts no step"),
        pytest.param(["a\nb\nc", "d"], [0, 0], id="a token over several lines"),
        pytest.param(["", "", "a"], [0, 0, 0], id="tokens without text"),
    ],
)
def test_a_step_is_a_line_with_its_newline(pieces: list[str], steps: list[int]) -> None:
    assert steps_of(row("a" * len(pieces), pieces), splitters.lines) == steps


@pytest.mark.parametrize(
    ("rollout", "steps"),
    [
        pytest.param(PROSE, [0, 0, 0, 1, 1, 1, 2, 2], id="separator glued to a full stop"),
        pytest.param(CHECK, [0, 0, 0, 0, 0, 1], id="a character of two tokens"),
    ],
)
def test_cuts_are_found_by_characters_not_by_tokens(rollout: Rollout, steps: list[int]) -> None:
    assert steps_of(rollout, splitters.after("\n\n")) == steps
    assert steps_of(rollout, splitters.lines) == steps


def test_a_separator_of_several_tokens_is_not_torn() -> None:
    rollout = Rollout(
        tokens=range(4), action_mask=[True] * 4, group=0, text="a。b", offsets=[(0, 1), (1, 2), (1, 2), (2, 3)]
    )

    assert steps_of(rollout, splitters.after("。")) == [0, 0, 0, 1]


def test_a_new_turn_starts_a_step_without_any_separator() -> None:
    rollout = row("paataa", list("qabtcd"))

    assert steps_of(rollout, splitters.lines) == [-1, 0, 0, -1, 1, 1]


def test_a_separator_in_a_tool_answer_cuts_and_one_in_the_prompt_does_not() -> None:
    rollout = row("ppata", ["q", "\n", "a", "\n", "b"], turns=[0, 0, 0, 0, 0])

    assert steps_of(rollout, splitters.lines) == [-1, -1, 0, -1, 1]


def test_any_expression_may_cut_and_each_rollout_is_cut_by_its_own_text() -> None:
    batch = collate([row("aaa", ["1", "+1=", "2"]), row("aaa", ["=", "==", "="]), row("aa", ["3", "4"])])

    assert splitters.after("=")(batch).step_of.tolist() == [[0, 0, 1], [0, 1, 2], [0, 0, -1]]


def test_a_marker_token_ends_its_step() -> None:
    batch = collate([row("paaaa"), row("aaa"), row("aaaa")])  # token ids 0, 1, 2 ...

    assert splitters.marker(2)(batch).step_of.tolist() == [[-1, 0, 0, 1, 1], [0, 0, 0, -1, -1], [0, 0, 0, 1, -1]]


def test_a_marker_that_was_not_sampled_ends_nothing_but_a_new_turn_does() -> None:
    one_turn = row("ata", turns=[0, 0, 0])

    assert steps_of(one_turn, splitters.marker(1)) == [0, -1, 0]
    assert steps_of(row("ata"), splitters.marker(1)) == [0, -1, 1]


@pytest.mark.parametrize(
    "rollout",
    [
        pytest.param(row("a"), id="neither text nor offsets"),
        pytest.param(row("a", text="a"), id="no offsets"),
        pytest.param(row("a", offsets=[(0, 1)]), id="no text"),
    ],
)
def test_rollouts_without_text_cannot_be_cut_by_text(rollout: Rollout) -> None:
    with pytest.raises(InputError, match="without text and offsets"):
        splitters.lines(collate([rollout]))


def test_a_pattern_that_is_no_expression_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"'\(' is no regular expression"):
        splitters.after("(")


def test_splitters_are_found_by_their_own_names() -> None:
    assert {name: splitter.__name__ for name, splitter in splitters.BY_NAME.items()} == {
        name: name for name in splitters.BY_NAME
    }


def opens_by_reading_on(rollout: Rollout, pattern: str) -> list[int]:
    """The step of every token, by walking through the text once: slow, and written without the step grid."""
    assert rollout.text is not None
    assert rollout.offsets is not None
    turns = collate([rollout]).turns[0].tolist()
    cuts = [match.end() for match in re.finditer(pattern, rollout.text)]
    steps, step, before = [], -1, -1
    for now, sampled in enumerate(rollout.action_mask):
        if sampled:
            ended, ends = rollout.offsets[before][1], rollout.offsets[now][1]
            passed = any(ended <= cut < ends for cut in cuts)
            step += before < 0 or passed or turns[now] != turns[before]
            before = now
        steps.append(step if sampled else -1)
    return steps


@given(random_rows(), st.sampled_from([r"\n\s*\n|\n", "=", "b|e", "=\n"]), st.integers(1, 7))
def test_cuts_are_where_reading_on_finds_them_in_any_layout(rows: list[Rollout], pattern: str, width: int) -> None:
    expected = [step for rollout in rows for step in opens_by_reading_on(rollout, pattern)]
    batch = recut(collate(rows), width)

    assert splitters.after(pattern)(batch).step_of[batch.valid_mask].tolist() == expected


@given(random_rows())
def test_a_marker_that_never_comes_cuts_between_turns_alone(rows: list[Rollout]) -> None:
    batch = collate(rows)
    turns_sampled_in = [
        len(set(batch.turns[batch.action_mask & (batch.rollout_of == n)].tolist())) for n in range(len(batch))
    ]

    assert splitters.marker(-7)(batch).counts.tolist() == turns_sampled_in


@given(random_rows())
def test_finer_splitters_cut_wherever_coarser_ones_do(rows: list[Rollout]) -> None:
    batch = collate(rows)
    coarse, fine, finest = splitters.whole(batch), splitters.lines(batch), splitters.every_token(batch)

    assert torch.equal(finest.counts, batch.action_counts)
    assert torch.equal(coarse.counts, (batch.action_counts > 0).long())
    assert bool((coarse.counts <= fine.counts).all())
    assert bool((fine.counts <= finest.counts).all())


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        pytest.param(["a\n", "b\n", " "], [0, 1, 1], id="trailing blanks"),
        pytest.param(["\n", "\n", "a\n", "b"], [0, 0, 0, 1], id="leading newlines"),
        pytest.param(["a\n", " \n", "  b"], [0, 0, 1], id="a line of blanks, and indentation"),
        pytest.param(["a\n", "b\n"], [0, 1], id="newline at the end"),
    ],
)
def test_a_line_without_words_is_no_step(pieces: list[str], steps: list[int]) -> None:
    batch = collate([row("a" * len(pieces), pieces, outcome=0.0)])

    assert splitters.lines(batch).step_of.tolist() == [steps]


def test_a_match_does_not_begin_in_the_prompt() -> None:
    batch = collate([row("paa", ["2=", "=3", "4"], outcome=0.0)])

    assert splitters.after("==")(batch).step_of.tolist() == [[-1, 0, 0]]


def test_a_pattern_that_matches_nothing_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="must match some text"):
        splitters.after("x*")
