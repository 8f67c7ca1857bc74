"""How many continuations a prefix gets."""

from __future__ import annotations

import math
import random

import pytest

from apportion.errors import InputError
from apportion.values.belief import mean, most_for, standard_error
from apportion.values.rules import Rule, adaptive, uniform
from apportion.values.sample_tree import UNKNOWN, Estimate


def run(rule: Rule, score: float, rng: random.Random) -> Estimate:
    """Draw coins of that chance until the rule has enough."""
    known, drawn, total = UNKNOWN, 0, 0.0
    while (more := rule(known, drawn)) > 0:
        total += sum(rng.random() < score for _ in range(more))
        drawn += more
        known = Estimate(mean(total, drawn), standard_error(total, drawn), drawn)
    return known


def test_uniform_gives_every_prefix_the_same_whatever_is_known() -> None:
    assert uniform(6)(UNKNOWN, 0) == 6
    assert uniform(6)(Estimate(0.5, 0.01, 100), 2) == 4
    assert uniform(6)(Estimate(0.5, 0.3, 1), 6) == 0


def test_defaults_are_the_published_number_and_an_error_that_two_who_agree_come_below() -> None:
    assert uniform()(UNKNOWN, 0) == 6
    assert uniform(1)(UNKNOWN, 0) == 1
    assert adaptive()(Estimate(0.9, 0.17, 2), 2) == 0
    assert adaptive()(Estimate(0.9, 0.19, 2), 2) == 1


@pytest.mark.parametrize(("score", "count"), [(0.0, 3), (1.0, 3)])
def test_adaptive_stops_early_where_samples_agree(score: float, count: int) -> None:
    assert run(adaptive(0.15), score, random.Random(0)).count == count


@pytest.mark.parametrize("error", [0.3, 0.2, 0.15, 0.1, 0.05])
def test_adaptive_is_as_sure_as_it_promised_within_its_ceiling(error: float) -> None:
    rng = random.Random(1)
    for _ in range(200):
        known = run(adaptive(error), rng.random(), rng)
        assert known.error <= error
        assert known.count <= most_for(error)


@pytest.mark.parametrize("error", [0.25, 0.15, 0.08])
def test_the_error_over_values_as_the_belief_has_them_is_the_one_promised(error: float) -> None:
    rng = random.Random(2)
    squares = []
    for _ in range(1500):
        score = rng.betavariate(0.25, 0.25)
        known = run(adaptive(error), score, rng)
        squares.append((known.mean - score) ** 2)
    assert math.sqrt(sum(squares) / len(squares)) <= 1.1 * error


def test_what_others_sampled_counts_and_most_is_a_ceiling() -> None:
    assert adaptive(0.15)(Estimate(0.0, 0.12, 4), 0) == 0
    assert adaptive(0.15, most=2)(Estimate(0.5, 0.25, 2), 2) == 0
    assert adaptive(0.15, least=3)(Estimate(1.0, 0.25, 1), 0) == 2


def test_continuations_that_cannot_be_scored_do_not_go_on_for_ever() -> None:
    assert adaptive(0.15)(UNKNOWN, 10) == 0


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: uniform(0), id="none"),
        pytest.param(lambda: adaptive(0.0), id="no error at all"),
        pytest.param(lambda: adaptive(0.5), id="any error"),
        pytest.param(lambda: adaptive(0.1, least=3, most=2), id="least over most"),
        pytest.param(lambda: adaptive(0.1, least=0), id="least of none"),
    ],
)
def test_rules_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
