"""At which steps prefixes are valued, and what the others take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.values.boundaries import (
    Boundaries,
    by_name,
    every,
    every_nth,
    first,
    first_failure,
    interpolate,
    refine,
    reuse,
)

NAN = float("nan")


def asked(choice: Boundaries, truth: list[float]) -> tuple[list[int], list[float]]:
    """Answer all that it asks of one rollout whose values are `truth`, its outcome last; what it asked, and filled."""
    there = torch.ones(1, len(truth), dtype=torch.bool)
    there[0, -1] = False
    known = torch.full((1, len(truth)), NAN, dtype=torch.float64)
    known[0, -1] = truth[-1]
    order: list[int] = []
    while True:
        wanted = (choice.choose(known, there) & known.isnan())[0].nonzero().flatten().tolist()
        if not wanted:
            return order, choice.fill(known)[0].tolist()
        order += wanted
        for k in wanted:
            known[0, k] = truth[k]


def test_every_boundary_the_first_ones_and_every_nth() -> None:
    truth = [0.5, 0.6, 0.7, 0.8, 1.0]
    assert asked(every(), truth) == ([0, 1, 2, 3], truth)
    assert asked(first(2), truth) == ([0, 1], [0.5, 0.6, 0.6, 0.6, 1.0])
    order, filled = asked(every_nth(2), truth)
    assert order == [0, 2]
    assert filled == pytest.approx([0.5, 0.6, 0.7, 0.85, 1.0])


def test_refining_goes_where_the_value_changes() -> None:
    truth = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0]
    order, filled = asked(refine(0.25), truth)
    assert order == [0, 4, 6, 5]
    assert filled == truth


def test_refining_asks_nothing_between_like_values() -> None:
    assert asked(refine(0.25), [0.9, 0.1, 0.2, 0.3, 1.0])[0] == [0]


def test_refining_splits_a_difference_above_the_gap_and_none_that_is_the_gap() -> None:
    assert asked(refine(0.25), [0.25, 0.5, 0.5])[0] == [0]
    assert asked(refine(0.0), [0.5, 0.5, 0.5])[0] == [0]
    assert asked(refine(0.0), [0.25, 0.25, 0.5])[0] == [0, 1]


def test_halving_finds_the_first_step_behind_which_nothing_succeeds() -> None:
    truth = [0.5, 0.4, 0.3, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0]
    order, filled = asked(first_failure(), truth)
    assert order == [0, 4, 6, 5]
    assert filled == [0.5, 0.5, 0.5, 0.5, 0.2, 0.0, 0.0, 0.0, 0.0]


def test_halving_leaves_an_answer_that_succeeded_alone() -> None:
    assert asked(first_failure(), [0.5, 0.1, 0.1, 1.0])[0] == [0]


def test_halving_stops_at_once_where_the_prompt_itself_is_lost() -> None:
    assert asked(first_failure(), [0.0, 0.0, 0.0, 0.0])[0] == [0]


def test_halving_that_has_found_its_step_wants_no_more_than_the_start() -> None:
    there, known = torch.tensor([[True, True, True, False]]), torch.tensor([[0.5, 0.0, NAN, 0.0]])
    assert first_failure().choose(known, there).tolist() == [[True, False, False, False]]


def test_rows_of_different_lengths_each_end_with_their_own_outcome() -> None:
    there = torch.tensor([[True, True, False, False], [True, True, True, False]])
    known = torch.tensor([[0.5, NAN, 1.0, NAN], [0.5, NAN, NAN, 0.0]])
    assert refine(0.25).choose(known, there).tolist() == [[True, True, False, False], [True, False, True, False]]
    assert first_failure().choose(known, there).tolist() == [[True, False, False, False], [True, False, True, False]]


@pytest.mark.parametrize("fill", [reuse, interpolate])
def test_filling_keeps_what_is_known_and_leaves_unknown_rows_alone(fill: object) -> None:
    values = torch.tensor([[NAN, 0.25, NAN, 0.75], [NAN, NAN, NAN, NAN], [0.5, NAN, NAN, NAN]])
    filled: Tensor = fill(values)  # type: ignore[operator]
    known = ~values.isnan()
    assert torch.equal(filled[known], values[known])
    assert filled[1].isnan().all()
    assert filled[0, 0] == 0.25
    assert filled[2].tolist() == [0.5] * 4


@pytest.mark.parametrize(
    "make", [lambda: first(0), lambda: every_nth(0), lambda: refine(-0.1), lambda: refine(float("nan"))]
)
def test_choices_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]


def test_choices_have_names() -> None:
    truth = [0.5, 0.5, 0.3, 0.0, 0.0]
    asked_by_name = {name: asked(by_name(name), truth)[0] for name in ("every", "first:1", "nth:3", "refine:0.4")}
    assert asked_by_name == {"every": [0, 1, 2, 3], "first:1": [0], "nth:3": [0, 3], "refine:0.4": [0, 2]}
    assert asked(by_name("refine"), truth)[0] == [0, 2, 3]


@pytest.mark.parametrize("name", ["evry", "first", "first:x", "refine:", "every:2", "nth:-1"])
def test_a_name_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="there are no boundaries"):
        by_name(name)
