"""Penalties for length."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rewards import length
from apportion.rewards.mixing import at_end
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from batches import FEWER, NAN, batch_of, poisoned, random_rows, row

LENGTHS = (80, 85, 100, 101)


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
def test_overlong_answers_are_punished_by_sampled_tokens_not_by_width(dtype: torch.dtype) -> None:
    batch = collate([row("p" * 27 + "a" * 40 + "t" * 9 + "a" * (n - 40), outcome=1.0) for n in LENGTHS], dtype=dtype)
    wide = splitters.whole(batch)

    found = length.soft_overlong(batch.outcome, wide, max_len=100, cache=20)

    assert batch.tokens.shape[1] == 137
    assert found.tolist() == [[0], [-0.25], [-1], [-1]]
    assert found.dtype == dtype


def test_the_penalty_is_paid_at_the_last_step() -> None:
    batch = batch_of("aaa", "aa", "pp")

    found = length.soft_overlong(batch.outcome, splitters.every_token(batch), max_len=4, cache=2)

    assert found.tolist() == [[0, 0, -0.5], [0, 0, 0], [0, 0, 0]]


def test_what_was_not_scored_pays_nothing_for_its_length() -> None:
    steps = splitters.whole(batch_of("aaa", "aaa"))
    outcome = torch.tensor([NAN, -2.0])

    assert length.soft_overlong(outcome, steps, max_len=2, cache=1).tolist() == [[0], [-1]]
    assert length.length_cost(outcome, steps, coef=1.0, max_len=4, wrong_up_to=-3.0).tolist() == [[0], [-0.75]]


@pytest.mark.parametrize("cache", [pytest.param(cache, id=f"cache {cache}") for cache in (1, 3, 6)])
def test_the_penalty_starts_at_the_cache_ends_at_the_limit_and_never_falls_back(cache: int) -> None:
    lengths = range(1, 10)
    steps = splitters.whole(batch_of(*("a" * n for n in lengths)))

    found = length.soft_overlong(torch.zeros(9).double(), steps, max_len=6, cache=cache).squeeze(1)

    for n, penalty in zip(lengths, found.tolist(), strict=True):
        assert (penalty == 0) == (n <= 6 - cache)
        assert (penalty == -1) == (n >= 6)
    assert (found.diff() <= 0).all()
    assert torch.unique(found[6 - cache : 5].diff().mul(cache).round(decimals=9)).tolist() in ([], [-1])


def test_only_right_answers_pay_for_their_length_and_never_more_than_the_coefficient() -> None:
    batch = batch_of("ptaa", "aaaa", "aaaaaaaaa", "aaaa", "aaaa", "p")
    outcome = torch.tensor([1.0, 0.5, 1.0, 0.0, -1.0, 1.0])

    found = length.length_cost(outcome, splitters.whole(batch), coef=0.5, max_len=8)

    assert found.tolist() == [[-0.125], [-0.25], [-0.5], [0], [0], [0]]


def test_the_line_between_right_and_wrong_is_a_setting() -> None:
    steps = splitters.whole(batch_of("aa", "aa", "aa"))

    found = length.length_cost(torch.tensor([0.25, 0.5, 0.75]), steps, coef=1.0, max_len=4, wrong_up_to=0.5)

    assert found.tolist() == [[0], [0], [-0.5]]


@FEWER
@given(rows=random_rows(), extra=st.integers(0, 3))
def test_lengths_do_not_change_with_padding_and_a_rollout_pays_for_itself_alone(
    rows: list[Rollout], extra: int
) -> None:
    batch = collate(rows, dtype=torch.float64)
    wider = poisoned(batch, extra)
    back = collate(rows[::-1], dtype=torch.float64)
    functions = (
        lambda batch, steps: length.soft_overlong(batch.outcome, steps, max_len=6, cache=4),
        lambda batch, steps: length.length_cost(batch.outcome, steps, coef=0.5, max_len=6),
    )
    for function in functions:
        found = function(batch, splitters.lines(batch))
        assert torch.equal(function(wider, splitters.lines(wider)), found)
        assert torch.equal(function(back, splitters.lines(back)).flip(0), found)
        assert torch.equal(found.sum(1), function(batch, splitters.whole(batch)).sum(1))
        assert torch.equal(found, at_end(found.sum(1), splitters.lines(batch)))


OUTCOME, STEPS = torch.zeros(1), splitters.whole(batch_of("a"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: length.soft_overlong(OUTCOME, STEPS, max_len=4, cache=5),
            "cache 5 and max_len 4",
            id="cache too big",
        ),
        pytest.param(lambda: length.soft_overlong(OUTCOME, STEPS, max_len=4, cache=0), "cache 0 and", id="no cache"),
        pytest.param(lambda: length.length_cost(OUTCOME, STEPS, coef=NAN, max_len=1), "coef .* nan came", id="NaN"),
        pytest.param(
            lambda: length.length_cost(OUTCOME, STEPS, coef=-0.5, max_len=1), "coef .* -0.5 came", id="a gain"
        ),
        pytest.param(lambda: length.length_cost(OUTCOME, STEPS, coef=0.5, max_len=0), "max_len .* 0 came", id="limit"),
        pytest.param(
            lambda: length.length_cost(OUTCOME, STEPS, coef=0.5, max_len=1, wrong_up_to=NAN), "wrong_up_to", id="line"
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_what_came(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_the_least_settings_that_mean_something_are_taken() -> None:
    one = torch.ones(1)

    assert length.soft_overlong(one, STEPS, max_len=1, cache=1).tolist() == [[-1]]
    assert length.length_cost(one, STEPS, coef=0.0, max_len=1).tolist() == [[0]]
    assert length.length_cost(one, STEPS, coef=0.5, max_len=1).tolist() == [[-0.5]]
