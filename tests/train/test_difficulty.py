"""Answers dealt out by how hard a prompt looks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apportion.rollouts import Rollout, collate
from apportion.train.difficulty import more_answers


def groups(*outcomes: list[float | None]) -> object:
    return collate([Rollout([7, 1], [False, True], g, score) for g, own in enumerate(outcomes) for score in own])


def test_hard_prompts_get_more_and_easy_ones_less() -> None:
    # believed rates: 2.25 / 2.5 = 0.9, 1.25 / 2.5 = 0.5, 0.25 / 2.5 = 0.1; so shares of 15: 1, 5 and 9
    batch = groups([1.0, 1.0], [1.0, 0.0], [0.0, 0.5])
    assert more_answers(batch, 15) == [1, 5, 9]
    assert more_answers(batch, 0) == [0, 0, 0]


def test_a_prompt_of_which_nothing_could_be_scored_is_half_hard() -> None:
    assert more_answers(groups([None, None], [1.0, 0.0]), 6) == [3, 3]


def test_what_does_not_divide_goes_to_the_largest_remainders() -> None:
    assert more_answers(groups([0.0], [0.0], [0.0]), 4) == [2, 1, 1]


@given(
    st.lists(st.lists(st.sampled_from([0.0, 1.0, None]), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_all_are_dealt_out_and_none_gets_fewer_than_an_easier_one(
    outcomes: list[list[float | None]], extra: int
) -> None:
    dealt = more_answers(groups(*outcomes), extra)
    assert sum(dealt) == extra
    assert min(dealt) >= 0
    for easy in [g for g, own in enumerate(outcomes) if own == [1.0]]:
        for hard in [g for g, own in enumerate(outcomes) if own == [0.0]]:
            assert dealt[hard] >= dealt[easy]
