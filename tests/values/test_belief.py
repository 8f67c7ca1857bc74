"""What samples let us believe of a value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.values.belief import mean, most_for, sample_mean, standard_error


def test_mean_and_standard_error_are_those_of_a_beta_distribution() -> None:
    # Beta(a, b) has mean a / (a + b) and variance a b / ((a + b)^2 (a + b + 1))
    assert mean(0.0, 0) == 0.5
    assert standard_error(0.0, 0) == pytest.approx(math.sqrt(0.25 / 1.5))
    assert mean(2.0, 3) == pytest.approx(2.25 / 3.5)
    assert standard_error(2.0, 3) == pytest.approx(math.sqrt(2.25 * 1.25 / (3.5**2 * 4.5)))


def test_another_span_is_the_same_belief_stretched() -> None:
    # two hits and a miss of a span from -1 to 3 total 3 + 3 - 1
    assert mean(5.0, 3, (-1.0, 3.0)) == pytest.approx(-1 + 4 * mean(2.0, 3))
    assert standard_error(5.0, 3, (-1.0, 3.0)) == pytest.approx(4 * standard_error(2.0, 3))


def test_the_mean_of_samples_is_theirs_whatever_the_span() -> None:
    assert sample_mean(3.0, 4) == sample_mean(3.0, 4, (-1.0, 3.0)) == 0.75


def test_many_samples_are_taken_at_their_word() -> None:
    assert mean(3000.0, 10_000) == pytest.approx(0.3, abs=1e-4)
    assert standard_error(3000.0, 10_000) == pytest.approx(math.sqrt(0.3 * 0.7 / 10_000), rel=1e-3)


@given(st.integers(0, 12), st.integers(0, 12))
def test_one_more_sample_is_not_expected_to_move_the_mean_and_takes_of_the_variance_what_it_moves(
    hits: int, misses: int
) -> None:
    total, count = float(hits), hits + misses
    now = mean(total, count)
    then = [mean(total + 1, count + 1), mean(total, count + 1)]
    errors = [standard_error(total + 1, count + 1), standard_error(total, count + 1)]
    chances = [now, 1 - now]

    assert sum(p * v for p, v in zip(chances, then, strict=True)) == pytest.approx(now)
    left = sum(p * e**2 for p, e in zip(chances, errors, strict=True))
    moved = sum(p * (v - now) ** 2 for p, v in zip(chances, then, strict=True))
    assert left + moved == pytest.approx(standard_error(total, count) ** 2)


@given(st.floats(0.02, 0.45))
def test_no_samples_more_than_the_ceiling_are_needed_and_one_less_can_be_too_few(error: float) -> None:
    most = most_for(error)
    assert max(standard_error(most * share / 20, most) for share in range(21)) <= error * (1 + 1e-12)
    if most > 1:
        assert standard_error((most - 1) / 2, most - 1) > error
