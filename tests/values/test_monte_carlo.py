"""Monte-Carlo values, with continuations and a judge whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest
import torch

from apportion import recipes
from apportion.errors import InputError
from apportion.ledger import apportion
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.values.monte_carlo import Prefix, monte_carlo

PROMPT = [7]


class Continuations:
    """Gives each prefix the continuations that were laid down for it, and remembers what it was asked."""

    def __init__(self, scores: dict[tuple[int, ...], list[float | None]]) -> None:
        self.scores = scores
        self.asked: list[tuple[int, ...]] = []
        self.sampled: list[int] = []

    def __call__(self, prefixes: list[Prefix]) -> list[list[int]]:
        self.asked += [prefix.tokens for prefix in prefixes]
        self.sampled += [prefix.sampled for prefix in prefixes]
        seen: dict[tuple[int, ...], int] = {}
        out = []
        for prefix in self.asked[-len(prefixes) :]:
            seen[prefix] = seen.get(prefix, -1) + 1
            out.append([1000 + seen[prefix]])
        return out

    def score(self, group: Hashable, tokens: Sequence[int]) -> float | None:
        *prefix, last = tokens
        return self.scores[tuple(prefix)][last - 1000]


def rollout(*response: int, outcome: float | None = 0.0, group: str = "g") -> Rollout:
    return Rollout([*PROMPT, *response], [False] + [True] * len(response), group, outcome)


def values_of(
    rows: list[Rollout], scores: dict[tuple[int, ...], list[float | None]]
) -> tuple[torch.Tensor, Continuations]:
    batch, source = collate(rows), Continuations(scores)
    samples = len(next(iter(scores.values())))
    value = monte_carlo(source, source.score, samples=samples)
    steps = splitters.every_token(batch)
    return value(batch, steps, torch.zeros(steps.mask.shape)), source


def test_a_value_is_the_mean_score_of_the_continuations_of_the_text_before_the_step() -> None:
    scores = {(7,): [1.0, 1.0, 0.0, 0.0], (7, 1): [1.0, 1.0, 1.0, 0.0], (7, 1, 2): [1.0, 0.0, 0.0, 0.0]}
    values, _ = values_of([rollout(1, 2, 3)], scores)
    assert values.tolist() == [[0.5, 0.75, 0.25]]


def test_credit_from_such_values_telescopes_to_outcome_minus_starting_value() -> None:
    source = Continuations({(7,): [1.0, 0.0], (7, 1): [1.0, 1.0], (7, 1, 2): [0.0, 0.0]})
    recipe = replace(
        recipes.by_name("vineppo"), split=splitters.every_token, value=monte_carlo(source, source.score, samples=2)
    )
    ledger = apportion(collate([rollout(1, 2, 3)]), recipe).require_laws()
    assert ledger.credit.tolist() == [[0.5, -1.0, 0.0]]
    assert ledger.credit.sum() == 0.0 - 0.5


def test_identical_prefixes_within_a_group_are_continued_once() -> None:
    scores = {prefix: [1.0, 0.0] for prefix in [(7,), (7, 1), (7, 1, 2), (7, 1, 3)]}
    values, source = values_of([rollout(1, 2, 9), rollout(1, 3, 9)], scores)
    assert sorted(source.asked) == sorted([(7,), (7, 1), (7, 1, 2), (7, 1, 3)] * 2)
    assert values.tolist() == [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]


def test_the_same_text_in_two_groups_is_judged_by_each_groups_own_problem() -> None:
    batch = collate([rollout(1, group="right"), rollout(1, group="wrong")])
    value = monte_carlo(lambda prefixes: [[0]] * len(prefixes), lambda group, _: float(group == "right"), samples=3)
    steps = splitters.whole(batch)
    assert value(batch, steps, torch.zeros(2, 1)).tolist() == [[1.0], [0.0]]


def test_nothing_is_spent_on_a_rollout_that_was_not_scored() -> None:
    _, source = values_of([rollout(1, 2), rollout(3, 4, outcome=None)], {(7,): [1.0], (7, 1): [1.0]})
    assert set(source.asked) == {(7,), (7, 1)}


def test_a_prefix_holds_the_tool_tokens_before_the_step_and_none_after() -> None:
    row = Rollout([7, 1, 50, 51, 2], [False, True, False, False, True], "g", 0.0)
    _, source = values_of([row], {(7,): [1.0], (7, 1, 50, 51): [0.0]})
    assert source.asked == [(7,), (7, 1, 50, 51)]
    assert source.sampled == [0, 1]


def test_continuations_that_could_not_be_scored_are_left_out_of_the_mean() -> None:
    values, _ = values_of([rollout(1)], {(7,): [1.0, None, 1.0, 0.0]})
    assert values.tolist() == [[pytest.approx(2 / 3)]]


def test_a_prefix_without_any_scored_continuation_is_refused_by_group() -> None:
    with pytest.raises(InputError, match="group 'g': none of 2 continuations"):
        values_of([rollout(1)], {(7,): [None, None]})


def test_no_samples_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1 sample"):
        monte_carlo(lambda prefixes: [], lambda group, tokens: 0.0, samples=0)
