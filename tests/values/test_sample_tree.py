"""The tree of samples: which sample tells about which prefix, and how sure that makes a value."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.values import belief
from apportion.values.sample_tree import SampleTree


def tree_of(prefixes: list[list[int]], samples: list[tuple[list[int], int, float]]) -> SampleTree:
    tree = SampleTree()
    for prefix in prefixes:
        tree.mark("g", prefix)
    for tokens, start, score in samples:
        tree.add("g", tokens, start, score)
    return tree


def test_a_sample_counts_for_every_prefix_that_it_runs_through_from_its_start_on() -> None:
    tree = tree_of([[7], [7, 1], [7, 1, 2]], [([7, 1, 2, 3], 1, 1.0), ([7, 1, 5], 2, 0.0), ([7, 1, 2, 4], 3, 0.0)])

    # 7 1 2: half of two. 7 1: one went on to 7 1 2 (1/2), one was lost (0). 7: one, which went on to 7 1
    assert tree.estimate("g", [7, 1, 2]).mean == 0.5
    assert tree.estimate("g", [7, 1]).mean == 0.25
    assert tree.estimate("g", [7]).mean == 0.25
    assert [tree.estimate("g", prefix).count for prefix in ([7], [7, 1], [7, 1, 2])] == [1, 2, 2]


def test_a_prefix_of_nothing_is_the_root() -> None:
    assert tree_of([[]], [([1], 0, 1.0), ([2], 0, 0.0)]).estimate("g", []).mean == 0.5


def test_groups_do_not_see_each_other_and_what_no_sample_reached_is_unknown() -> None:
    tree = tree_of([[7], [8]], [([7, 1], 1, 1.0)])
    tree.mark("h", [7])

    assert tree.estimate("g", [7]).count == 1
    for group, prefix in (("g", [8]), ("h", [7])):
        assert tree.estimate(group, prefix).count == 0
        assert math.isnan(tree.estimate(group, prefix).mean)


def test_samples_that_come_later_are_heard() -> None:
    tree = tree_of([[7]], [([7, 1], 1, 1.0)])
    assert tree.estimate("g", [7]).mean == 1.0

    tree.add("g", [7, 2], 1, 0.0)

    assert tree.estimate("g", [7]).mean == 0.5


def test_a_sample_that_counts_for_its_prefix_alone_is_heard_whenever_it_comes() -> None:
    tree = tree_of([[7], [7, 1]], [([7, 1, 2], 1, 1.0)])
    assert tree.estimate("g", [7]).mean == 1.0

    tree.add_alone("g", [7], 0.0)

    assert tree.estimate("g", [7]).mean == 0.5
    assert tree.estimate("g", [7, 1]).count == 1


def test_a_sample_that_runs_through_no_valued_prefix_tells_nothing() -> None:
    tree = tree_of([[7, 1]], [([7, 2], 1, 1.0), ([8], 0, 1.0)])
    assert tree.estimate("g", [7, 1]).count == 0


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan])
def test_a_score_outside_the_span_is_refused(score: float) -> None:
    with pytest.raises(InputError, match="outside the span"):
        tree_of([[7]], [([7], 1, score)])


def test_a_value_that_is_believed_takes_few_samples_less_at_their_word() -> None:
    tree = SampleTree((-1.0, 3.0), belief.mean)
    for prefix in ([7], [7, 1]):
        tree.mark("g", prefix)
    for tokens, start, score in (([7, 1], 2, 3.0), ([7, 1], 2, 3.0), ([7, 1], 1, -1.0)):
        tree.add("g", tokens, start, score)

    # of scores from 0 to 1: two hits and a miss, (2 + 1/4) / (3 + 1/2); above it one sample, which went on to that
    below = 2.25 / 3.5
    assert tree.estimate("g", [7, 1]).mean == pytest.approx(-1 + 4 * below)
    assert tree.estimate("g", [7]).mean == pytest.approx(-1 + 4 * (below + 0.25) / 1.5)
    # the variance of Beta(a, b) is a b / ((a + b)^2 (a + b + 1))
    assert tree.estimate("g", [7, 1]).error == pytest.approx(4 * math.sqrt(2.25 * 1.25 / (3.5**2 * 4.5)))


@given(st.integers(0, 10**6))
def test_values_are_fair_wherever_samples_started(seed: int) -> None:
    """A chain of two fair coins: heads twice is 1. The value after one head is 1/2, at the start 1/4."""
    rng = random.Random(seed)
    tree = SampleTree()
    for prefix in ([7], [7, 1], [7, 0]):
        tree.mark("g", prefix)
    for _ in range(400):
        coins = [rng.randint(0, 1), rng.randint(0, 1)]
        tree.add("g", [7, *coins], 1, float(sum(coins) == 2))
    for _ in range(800):  # many more below one branch alone, which must not pull at the start
        coin = rng.randint(0, 1)
        tree.add("g", [7, 1, coin], 2, float(coin))

    assert tree.estimate("g", [7, 1]).mean == pytest.approx(0.5, abs=0.09)
    assert tree.estimate("g", [7]).mean == pytest.approx(0.25, abs=0.09)
    assert tree.estimate("g", [7, 0]).mean == 0.0
