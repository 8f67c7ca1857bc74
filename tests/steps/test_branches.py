"""Nodes of a tree of answers as steps."""

from __future__ import annotations

from hypothesis import given

from apportion.rollouts import Rollout, collate
from apportion.steps.branches import branches
from apportion.steps.splitters import whole
from batches import FEWER, random_rows


def answer(*tokens: int, group: str = "g") -> Rollout:
    return Rollout([9, *tokens], [False] + [True] * len(tokens), group, 0.0)


def test_a_step_ends_where_answers_part() -> None:
    steps = branches(collate([answer(1, 2, 3), answer(1, 2, 4, 4), answer(1, 5)]))

    # 1 | 2 | 3, 1 | 2 | 4 4, 1 | 5
    assert steps.step_of.tolist() == [[-1, 0, 1, 2, -1], [-1, 0, 1, 2, 2], [-1, 0, 1, -1, -1]]


def test_an_answer_that_ends_where_another_goes_on_parts_there() -> None:
    steps = branches(collate([answer(1), answer(1, 2, 2)]))
    assert steps.step_of.tolist() == [[-1, 0, -1, -1], [-1, 0, 1, 1]]


def test_only_answers_of_a_group_have_nodes_in_common() -> None:
    steps = branches(collate([answer(1, 2, group="a"), answer(1, 3, group="b")]))
    assert steps.counts.tolist() == [1, 1]


def test_where_a_tool_spoke_differently_answers_part_at_their_next_token() -> None:
    rows = [Rollout([9, 1, tool, 2], [False, True, False, True], "g", 0.0) for tool in (50, 51)]
    assert branches(collate(rows)).step_of.tolist() == [[-1, 0, -1, 1], [-1, 0, -1, 1]]


@FEWER
@given(random_rows())
def test_answers_that_share_nothing_are_one_step_each(rows: list[Rollout]) -> None:
    apart = [Rollout([100 + n, *row.tokens], [False, *row.action_mask], row.group, 0.0) for n, row in enumerate(rows)]
    batch = collate(apart)
    assert branches(batch).number.equal(whole(batch).number)


def test_an_answer_without_a_vote_makes_no_parting() -> None:
    rows = [answer(1, 2), Rollout([9, 1, 3], [False, True, True], "g", None)]
    assert branches(collate(rows)).counts.tolist()[0] == 1
