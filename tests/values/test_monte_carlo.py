"""Monte-Carlo values, with continuations and a judge whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from apportion import recipes
from apportion.errors import InputError
from apportion.ledger import apportion
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.values import belief, boundaries, rules
from apportion.values.engine import Drawn, Prefix, Wanted
from apportion.values.monte_carlo import MonteCarlo

PROMPT = [7]
Scores = dict[tuple[int, ...], list[float | None]]


@dataclass
class Continuations:
    """Gives each prefix the continuations that were laid down for it, and remembers what it was asked.

    Continuation number i is one token, 1000 + i, and has the i-th score.
    """

    scores: Scores
    asked: list[tuple[int, ...]] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    rounds: int = 0
    fingerprint: str = "laid down"

    def limit(self, prefix: Prefix) -> int:
        return 1

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        self.rounds += 1
        for i, want in enumerate(wanted):
            for number in range(want.first, want.first + want.count):
                self.asked.append(want.prefix.tokens)
                self.sampled.append(want.prefix.sampled)
                yield Drawn(i, number, (1000 + number,), ended=True, cost=1)

    def score(self, group: Hashable, tokens: Sequence[int]) -> float | None:
        *prefix, last = tokens
        return self.scores[tuple(prefix)][last - 1000]

    def values(self, samples: int) -> MonteCarlo:
        return MonteCarlo(self, self.score, rules.uniform(samples), pooled=False)


def rollout(*response: int, outcome: float | None = 0.0, group: str = "g") -> Rollout:
    return Rollout([*PROMPT, *response], [False] + [True] * len(response), group, outcome)


def values_of(rows: list[Rollout], scores: Scores) -> tuple[torch.Tensor, Continuations]:
    batch, source = collate(rows), Continuations(scores)
    steps = splitters.every_token(batch)
    value = source.values(len(next(iter(scores.values()))))
    return value(batch, steps, torch.zeros(steps.mask.shape)), source


def test_a_value_is_the_mean_score_of_the_continuations_of_the_text_before_the_step() -> None:
    scores = {(7,): [1.0, 1.0, 0.0, 0.0], (7, 1): [1.0, 1.0, 1.0, 0.0], (7, 1, 2): [1.0, 0.0, 0.0, 0.0]}
    values, _ = values_of([rollout(1, 2, 3)], scores)
    assert values.tolist() == [[0.5, 0.75, 0.25]]


def test_credit_from_such_values_telescopes_to_outcome_minus_starting_value() -> None:
    source = Continuations({(7,): [1.0, 0.0], (7, 1): [1.0, 1.0], (7, 1, 2): [0.0, 0.0]})
    recipe = replace(recipes.by_name("vineppo"), split=splitters.every_token, value=source.values(2))
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
    value = MonteCarlo(Continuations({}), lambda group, _: float(group == "right"), rules.uniform(3), pooled=False)
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


def test_a_prefix_without_any_scored_continuation_takes_the_value_before_it() -> None:
    with pytest.warns(UserWarning, match="of 1 of 2 prefixes no continuation could be scored"):
        values, _ = values_of([rollout(1, 2)], {(7,): [1.0, 0.0], (7, 1): [None, None]})
    assert values.tolist() == [[0.5, 0.5]]


def test_where_no_continuation_at_all_could_be_scored_the_group_is_named() -> None:
    with pytest.raises(InputError, match="group 'g': none of 2 continuations"):
        values_of([rollout(1)], {(7,): [None, None]})


def test_answers_that_run_through_a_prefix_count_as_its_samples_too() -> None:
    # 7: two answers and one continuation, (1/2 + 0 + 1) / 3; 7 1: one answer and two continuations
    scores: Scores = {(7,): [1.0], (7, 1): [1.0]}
    source = Continuations(scores)
    batch = collate([rollout(1, 5, outcome=0.0), rollout(2, outcome=0.0)])
    steps = splitters.number_steps(batch, batch.tokens == 5)

    found = MonteCarlo(source, source.score, rules.uniform(1)).estimate(batch, steps)

    assert found.value.tolist() == [[pytest.approx(0.5), pytest.approx(0.5)], [pytest.approx(0.5), 0]]
    assert found.count.tolist() == [[3, 2], [3, 0]]
    assert found.spent == 2


def test_a_rule_is_asked_again_until_every_prefix_has_what_it_needs() -> None:
    scores: Scores = {(7,): [0.0, 1.0] * 6, (7, 1): [1.0] * 12}
    source = Continuations(scores)
    batch = collate([rollout(1, 2, outcome=1.0)])
    steps = splitters.every_token(batch)

    found = MonteCarlo(source, source.score, rules.adaptive(0.18)).estimate(batch, steps)

    # both agree at the second step; at the first the continuations do not, and it has its most, 7
    assert found.count.tolist() == [[7, 2]]
    assert bool((found.error <= 0.18).all())
    assert source.asked.count((7,)) == 6, "the answer is one sample of either"
    assert source.asked.count((7, 1)) == 1


def test_boundaries_are_chosen_by_what_is_settled() -> None:
    # one continuation of 7 alone would be far from the outcome, both are not
    source = Continuations({(7,): [1.0, 0.0]})
    batch = collate([rollout(1, 2, outcome=0.5)])
    values = MonteCarlo(source, source.score, lambda _, drawn: int(drawn < 2), boundaries.refine(), pooled=False)

    found = values.estimate(batch, splitters.every_token(batch))

    assert source.asked == [(7,), (7,)]
    assert found.value.tolist() == [[0.5, 0.5]]


def test_a_believed_value_takes_few_samples_less_at_their_word() -> None:
    batch = collate([rollout(1, outcome=1.0)])
    steps = splitters.every_token(batch)

    def value(**settings: Any) -> float:
        source = Continuations({(7,): [1.0, 1.0]})
        return float(MonteCarlo(source, source.score, rules.uniform(2), **settings).estimate(batch, steps).value)

    assert value() == 1.0
    assert value(mean=belief.mean) == pytest.approx(3.25 / 3.5)
    assert value(mean=belief.mean, answers=False) == pytest.approx(2.25 / 2.5)


def test_a_budget_is_never_passed_and_what_it_left_open_comes_from_neighbours() -> None:
    prefixes: list[tuple[int, ...]] = [(7,), (7, 1), (7, 1, 2), (7, 1, 2, 3)]
    source = Continuations({prefix: [1.0] * 4 for prefix in prefixes})
    batch = collate([rollout(1, 2, 3, 4, outcome=0.0)])
    steps = splitters.every_token(batch)
    values = MonteCarlo(source, source.score, rules.uniform(4), boundaries.every_nth(1), budget=5, pooled=False)

    with pytest.warns(UserWarning, match="budget of 5 tokens ended before 3 prefixes"):
        found = values.estimate(batch, steps)

    assert found.spent == 5
    assert found.count.tolist() == [[4, 1, 0, 0]]
    assert found.value.tolist() == [[1.0, 1.0, pytest.approx(2 / 3), pytest.approx(1 / 3)]]
    assert found.error.isnan().tolist() == [[False, False, True, True]]


def test_a_score_outside_the_span_is_refused() -> None:
    source = Continuations({(7,): [3.0]})
    with pytest.raises(InputError, match="lies outside the span"):
        values_of([rollout(1)], source.scores)


def test_a_wider_span_widens_the_error() -> None:
    source = Continuations({(7,): [-1.0, 1.0]})
    batch = collate([rollout(1, outcome=1.0)])
    steps = splitters.whole(batch)
    narrow = MonteCarlo(source, lambda group, tokens: 0.5, rules.uniform(2), pooled=False)
    wide = MonteCarlo(source, source.score, rules.uniform(2), span=(-1.0, 1.0), pooled=False)

    assert float(wide.estimate(batch, steps).error) == pytest.approx(2 * float(narrow.estimate(batch, steps).error))
    assert wide.estimate(batch, steps).value.tolist() == [[0.0]]


def test_steps_of_rollouts_that_are_left_out_take_their_starting_value() -> None:
    source = Continuations({(7,): [1.0, 0.0], (7, 1): [1.0, 1.0]})
    batch = collate([rollout(1, 2, outcome=1.0), rollout(1, 4, 5, outcome=0.0)])
    steps = splitters.every_token(batch)
    values = replace(source.values(2), which=lambda rollouts: rollouts.outcome > 0)

    found = values.estimate(batch, steps)

    assert set(source.asked) == {(7,), (7, 1)}
    assert found.value.tolist() == [[0.5, 1.0, 0.0], [0.5, 0.5, 0.5]]
    assert found.count.tolist() == [[2, 2, 0], [2, 0, 0]]


def test_continuations_count_beyond_their_own_prefix_unless_values_are_to_be_as_published() -> None:
    # the continuation of 7 is the token 1000, and so runs through the second prefix
    source = Continuations({(7,): [1.0], (7, 1000): [0.0]})
    batch = collate([rollout(1000, 5, outcome=1.0)])
    steps = splitters.every_token(batch)

    published = source.values(1).estimate(batch, steps)
    pooled = MonteCarlo(source, source.score, rules.uniform(1), answers=False).estimate(batch, steps)

    assert (published.count.tolist(), published.value.tolist()) == ([[1, 1]], [[1.0, 0.0]])
    assert (pooled.count.tolist(), pooled.value.tolist()) == ([[1, 2]], [[0.5, 0.5]])


def test_progress_tells_the_error_of_what_is_settled() -> None:
    source = Continuations({(7,): [1.0, 0.0], (7, 1): [1.0, 1.0]})
    batch = collate([rollout(1, 2, outcome=1.0)])
    told: list[float] = []

    source.values(2).estimate(batch, splitters.every_token(batch), lambda now: told.append(now.error))

    assert told == pytest.approx([float("nan"), first := 0.2673, first, (first + 0.16) / 2], abs=1e-3, nan_ok=True)


def test_progress_is_told_after_every_continuation() -> None:
    source = Continuations({(7,): [1.0, 0.0], (7, 1): [1.0, 1.0]})
    batch = collate([rollout(1, 2, outcome=1.0)])
    told: list[tuple[int, int, int, int]] = []

    source.values(2).estimate(
        batch,
        splitters.every_token(batch),
        lambda now: told.append((now.tokens, now.samples, now.settled, now.wanted)),
    )

    assert told == [(1, 1, 0, 2), (2, 2, 0, 2), (3, 3, 0, 2), (4, 4, 0, 2)]
