"""Means with their intervals."""

from itertools import pairwise

import pytest

from apportion.compare.interval import T95, difference, estimate


def test_a_mean_of_three_seeds_by_hand():
    found = estimate([0.1, 0.2, 0.6])
    assert found.mean == pytest.approx(0.3)
    assert found.half == pytest.approx(4.303 * (0.07**0.5) / 3**0.5, rel=1e-3)  # variance (0.04 + 0.01 + 0.09) / 2


def test_one_seed_has_no_interval_and_proves_nothing():
    found = estimate([0.25])
    assert (found.mean, found.half, found.told_apart) == (0.25, None, False)
    assert str(found) == "25.0"


def test_differences_are_taken_seed_by_seed():
    found = difference({1: 0.5, 2: 0.7, 3: 0.1}, {1: 0.4, 2: 0.6, 3: 0.0})
    assert found.points == "+10.0 ± 0.0"
    assert found.told_apart


def test_without_common_seeds_the_means_are_compared_by_welch():
    found = difference({0: 0.1, 1: 0.3}, {5: 0.5, 6: 0.9})
    # variances 0.02 and 0.08 over two: 0.01 and 0.04; 0.05 ** 2 / (0.0001 + 0.0016) = 1.47 degrees, so 1
    assert found.mean == pytest.approx(-0.5)
    assert found.half == pytest.approx(T95[0] * 0.05**0.5)
    assert not found.told_apart


def test_students_points_fall_to_the_normal_ones():
    assert all(after < before for before, after in pairwise(T95))
    assert estimate([0.0, 1.0] * 20).half == pytest.approx(2.0227 * 0.50637 / 40**0.5, rel=1e-3)  # t of 39
