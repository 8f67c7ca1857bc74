"""Recipes put together from names, and what the summary says of steps."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from apportion import apportion
from apportion.credit_file import print_summary, recipe_of
from apportion.errors import InputError
from apportion.rewards.mixing import MIXES, Bootstrapped
from apportion.rollouts import Rollouts, collate
from batches import row


def two_answers(lines: int) -> Rollouts:
    """Answers of lines of four tokens: x, x, =, and a newline."""
    pieces = ["x", "x.", "=", "\n"] * lines
    values = (0.5,) * len(pieces)
    rows = [row("a" * len(pieces), pieces, outcome=outcome, step_values=values) for outcome in (0.0, 1.0)]
    return collate(rows)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        pytest.param("whole", 1, id="whole"),
        pytest.param("turns", 1, id="turns"),
        pytest.param("lines", 6, id="lines"),
        pytest.param("sentences", 6, id="sentences"),
        pytest.param("every_token", 24, id="every token"),
        pytest.param("chunks", 1, id="chunks of 200"),
        pytest.param("chunks:5", 5, id="chunks of a size"),
        pytest.param("key_tokens", 13, id="key tokens"),
        pytest.param("key_tokens:x+", 18, id="key tokens by a pattern"),
        pytest.param("after:x", 7, id="after a pattern"),
        pytest.param("after::", 1, id="after a colon"),
        pytest.param("marker:3", 2, id="after a marker token"),
    ],
)
def test_every_splitter_has_a_name(name: str, counts: int) -> None:
    steps = recipe_of("vineppo", split=name).split(two_answers(6))

    assert steps.counts.tolist() == [counts] * 2


@pytest.mark.parametrize(
    "name", ["line", "chunk", "chunks:many", "chunks:", "marker", "marker:-1", "after", "turns:2", ""]
)
def test_a_name_that_no_splitter_has_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(InputError, match=r"there is no splitter .*key_tokens:REGEX.*chunks:NUMBER"):
        recipe_of("vineppo", split=name)


def test_a_chunk_of_no_token_is_refused() -> None:
    with pytest.raises(InputError, match="a chunk needs at least 1 token"):
        recipe_of("vineppo", split="chunks:0")


def test_steps_are_as_published_unless_the_most_tokens_of_a_step_are_given() -> None:
    batch = two_answers(2)

    assert recipe_of("vineppo").split(batch).lengths.tolist() == [[4, 4]] * 2
    assert recipe_of("vineppo", most_step_tokens=3).split(batch).lengths.tolist() == [[2, 2, 2, 2]] * 2
    with pytest.raises(InputError, match="a step needs at least 1 token"):
        recipe_of("vineppo", most_step_tokens=0)
    with pytest.warns(UserWarning, match="the last gets all its credit"):
        recipe_of("grpo", most_step_tokens=30)


def test_the_whole_answer_asked_for_by_name_is_no_surprise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recipe_of("grpo", split="whole")


def summary(recipe: str, lines: int) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    print_summary(apportion(two_answers(lines), recipe_of(recipe)), Path("out.jsonl"), console)
    return console.export_text()


def test_the_summary_tells_how_long_steps_are() -> None:
    said = summary("vineppo", 6)

    assert "12; 6 a rollout" in said
    assert "4 tokens " in said
    assert "2-7 #################### 12" in said
    assert "too fine: most steps have under 8 tokens" in said


def test_the_summary_has_nothing_to_say_of_the_length_of_whole_answers() -> None:
    said = summary("grpo", 6)

    assert "│ steps              │ 2 " in said
    assert "tokens, median" not in said


def test_answers_are_credited_as_a_whole_where_that_is_asked_for() -> None:
    batch = two_answers(3)

    with pytest.warns(UserWarning, match="2 of 2 rollouts are credited as a whole"):
        found = apportion(batch, recipe_of("vineppo", min_spread=0.05))

    assert found.steps.counts.tolist() == [1, 1]
    assert apportion(batch, recipe_of("vineppo")).steps.counts.tolist() == [3, 3]


def test_another_mix_leaves_the_bootstrap_of_a_recipe_where_it_was() -> None:
    assert recipe_of("ppo", mix="chat").reward == Bootstrapped(MIXES["chat"])
    assert recipe_of("grpo", mix="chat").reward == MIXES["chat"]
