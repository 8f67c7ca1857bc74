"""Values from the answers of the group themselves, and the recipe that makes of them the credit of a tree."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion import recipes
from apportion.ledger import apportion
from apportion.rollouts import Rollout, collate
from apportion.values.answers import answers_through
from apportion.values.baselines import group_mean
from batches import FEWER, ledger_of, random_rows


def answer(*tokens: int, outcome: float | None, branched_at: int = 0) -> Rollout:
    return Rollout([9, *tokens], [False] + [True] * len(tokens), "g", outcome, branched_at=branched_at)


def test_the_credit_of_a_tree_by_hand() -> None:
    #  9 - 1 2 - 3 3   right       of the prompt two answers were sampled, 1 2 .. and 5, and one more from 9 1 2
    #        \\ - 4     wrong
    #    - 5           wrong
    rows = [answer(1, 2, 3, 3, outcome=1.0), answer(5, outcome=0.0), answer(1, 2, 4, outcome=0.0, branched_at=3)]

    ledger = apportion(collate(rows), recipes.tree()).require_laws()

    # after 1 2: (1 + 0) / 2. At the prompt: (1/2 + 0) / 2, for the branch was not drawn from there
    assert ledger.value.tolist() == [[0.25, 0.5], [0.25, 0.0], [0.25, 0.5]]
    assert ledger.credit.tolist() == [[0.25, 0.5], [-0.25, 0.0], [0.25, -0.5]]
    assert ledger.advantage.tolist() == [[0, 0.25, 0.25, 0.5, 0.5], [0, -0.25, 0, 0, 0], [0, 0.25, 0.25, -0.5, 0]]
    assert ledger.mask.tolist()[2] == [False, False, False, True, False]


def test_a_branch_that_was_not_scored_has_no_vote_anywhere() -> None:
    rows = [answer(1, 2, outcome=1.0), answer(1, 3, outcome=None, branched_at=2)]
    ledger = apportion(collate(rows), recipes.tree())
    assert ledger.value.tolist() == [[1.0, 0.0], [0.0, 0.0]]  # nobody parts from it
    assert ledger.advantage.tolist() == [[0, 0, 0], [0, 0, 0]]


@FEWER
@given(random_rows())
def test_answers_that_share_the_prompt_alone_are_worth_the_group_mean_at_first(rows: list[Rollout]) -> None:
    starts: dict[Hashable, int] = {}
    apart = []
    for n, row in enumerate(rows):  # one prompt a group, and a first token for each answer
        starts.setdefault(row.group, len(starts))
        prompt = [50 + starts[row.group]]
        apart.append(Rollout([*prompt, 100 + n], [False, True], row.group, row.outcome))
    batch = collate(apart, dtype=torch.float64)
    recipe = recipes.tree()
    steps, rewards = recipe.split(batch), recipe.reward(batch, recipe.split(batch))["outcome"]
    votes = batch.votes.unsqueeze(1)

    found, expected = answers_through(batch, steps, rewards), group_mean(batch, steps, rewards)

    torch.testing.assert_close(torch.where(votes, found, 0), torch.where(votes, expected, 0))


BEGINNINGS = st.lists(st.lists(st.integers(1, 2), max_size=5), min_size=1, max_size=6)


@FEWER
@given(BEGINNINGS, st.data())
def test_tokens_that_answers_share_have_one_credit(beginnings: list[list[int]], data: st.DataObject) -> None:
    outcomes = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(beginnings), max_size=len(beginnings)))
    answers = [[*tokens, 100 + n] for n, tokens in enumerate(beginnings)]  # each with an end of its own
    batch = collate([answer(*tokens, outcome=score) for tokens, score in zip(answers, outcomes, strict=True)])

    found = ledger_of(batch, recipes.tree()).advantage.tolist()

    credits: dict[tuple[int, ...], float] = {}
    for tokens, advantages in zip(answers, found, strict=True):
        for t in range(len(tokens)):
            prefix = tuple(tokens[: t + 1])
            assert credits.setdefault(prefix, advantages[t + 1]) == advantages[t + 1]
