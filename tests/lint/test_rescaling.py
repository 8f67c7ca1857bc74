"""Which map made the advantages: told by the numbers, and honest only over the sampled tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from apportion.lint import lint
from apportion.lint.rescaling import (
    ANSWERS,
    EVERY_PLACE,
    EVERY_TOKEN,
    SAMPLED,
    Rescaling,
    Samples,
    fitted,
    honest,
    plausible,
    recognised,
)

RAW = torch.tensor([[1.0, 2.0, 3.0, 6.0, 9.0, 0.0]], dtype=torch.float64)
COUNTED = torch.tensor([[True, True, True, True, False, False]])
ENDS = torch.tensor([[True, True, False, True, False, False]])  # answers of one token, one, and two
VALID = torch.tensor([[True, True, True, True, True, False]])


def samples(came: torch.Tensor, raw: torch.Tensor = RAW, tolerance: float = 1e-9) -> Samples:
    behind = torch.where(COUNTED, came, torch.nan)  # what is not counted has no say
    return Samples(raw, behind, COUNTED, ENDS, VALID, tolerance, 1e-12)


def moments(places: torch.Tensor) -> tuple[float, torch.Tensor]:
    return float(RAW[places].mean()), RAW[places]


WHITENED = [
    pytest.param(lambda: (3.0, math.sqrt(14 / 3)), "whitened", SAMPLED, SAMPLED, id="sample"),
    pytest.param(lambda: (3.0, math.sqrt(14 / 4)), "whitened", SAMPLED, SAMPLED, id="population"),
    pytest.param(lambda: (3.0, 1.0), "centred", SAMPLED, SAMPLED, id="centred"),
    # 1 2 6: mean 3, squares 4 + 1 + 9
    pytest.param(lambda: (3.0, math.sqrt(14 / 2)), "whitened", SAMPLED, ANSWERS, id="answers-sample"),
    # 1 2 3 6 9: mean 4.2, squares 131 - 5 * 4.2^2
    pytest.param(lambda: (4.2, math.sqrt(42.8 / 4)), "whitened", EVERY_TOKEN, EVERY_TOKEN, id="environment-sample"),
    pytest.param(lambda: (4.2, math.sqrt(42.8 / 5)), "whitened", EVERY_TOKEN, EVERY_TOKEN, id="environment-population"),
    pytest.param(lambda: (4.2, 1.0), "centred", EVERY_TOKEN, EVERY_TOKEN, id="centred-by-the-environment"),
    pytest.param(lambda: (3.5, math.sqrt(57.5 / 6)), "whitened", EVERY_PLACE, EVERY_PLACE, id="everything"),
    # about 3.5 the sampled ones have squares 6.25 + 2.25 + 0.25 + 6.25
    pytest.param(lambda: (3.5, math.sqrt(15 / 4)), "whitened", EVERY_PLACE, SAMPLED, id="unmasked-mean"),
    pytest.param(
        lambda: (3.0, math.sqrt(14 + 36) / math.sqrt(4)), "whitened", SAMPLED, EVERY_TOKEN, id="spread-of-all"
    ),
]


@pytest.mark.parametrize(("line", "kind", "mean_of", "spread_of"), WHITENED)
def test_known_statistics_are_recognised(line, kind, mean_of, spread_of):
    centre, spread = line()
    found = recognised(samples((RAW - centre) / spread))
    assert found is not None
    assert (found.kind, found.mean_of, found.spread_of) == (kind, mean_of, spread_of)
    assert (found.centre, found.spread) == pytest.approx((centre, spread))
    assert found.is_honest == ({mean_of, spread_of} <= {SAMPLED, ANSWERS})
    assert plausible(samples((RAW - centre) / spread))


@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-5, 1e-4], ids=str)
@pytest.mark.parametrize("variance", [14 / 3, 14 / 4], ids=["sample", "population"])
def test_what_is_added_to_a_deviation_or_a_variance_is_taken_as_it_comes(epsilon, variance):
    for spread in (math.sqrt(variance) + epsilon, math.sqrt(variance + epsilon)):
        found = recognised(samples((RAW - 3.0) / spread, tolerance=1e-10))
        assert found is not None
        assert found.spread == pytest.approx(spread, abs=1e-9)


# Exact in binary: what comes at the edge of a tolerance is allowed, what comes past it is not.


def exact(raw: list[float], came: list[float], tolerance: float) -> Samples:
    pair = [torch.tensor([numbers], dtype=torch.float64) for numbers in (raw, came)]
    here = torch.ones_like(pair[0], dtype=torch.bool)
    return Samples(*pair, here, here, here, tolerance, 0.0)


def test_raw_credit_may_be_off_by_the_tolerance_and_no_more():
    assert recognised(exact([1, 2], [1, 2.25], 0.25)) == Rescaling("none")
    assert recognised(exact([1, 2, 4], [1, 2, 4.375], 0.25)) is None


def test_equal_credit_may_differ_by_the_tolerance_and_come_out_as_0_within_it():
    flat = Rescaling("whitened", 2.0, 1.0, SAMPLED, SAMPLED)
    assert recognised(exact([2, 2.25], [0, 0.25], 0.25)) == flat
    assert recognised(exact([2, 2.375], [0, 0], 0.25)) is None
    assert recognised(exact([2, 2.25], [0, 0.375], 0.25)) is None


# The residuals (1, -2, 1, 0) are at right angles to (1, 2, 3, 6): the line of least squares stays.
@pytest.mark.parametrize(
    ("off", "found", "left_open"),
    [
        pytest.param(0.125, True, True, id="at-the-edge"),
        pytest.param(0.1875, False, True, id="past-it"),
        pytest.param(0.5, False, True, id="a-few-rows-at-the-edge"),
        pytest.param(0.53125, False, False, id="a-few-rows-past-it"),
    ],
)
def test_a_line_may_be_missed_by_the_tolerance_and_a_few_rows_by_four_times_that(off, found, left_open):
    came = [10 + off, 20 - 2 * off, 30 + off, 60]
    asked = exact([10, 20, 30, 60], came, 0.25)
    assert (recognised(asked) == Rescaling("none")) == found
    twice = exact([10, 20, 30, 60], [2 * x for x in came], 0.25)
    assert (fitted(twice) == Rescaling("scaled", 0.0, 0.5)) == found
    assert plausible(twice) == left_open


@pytest.mark.parametrize(
    ("height", "kind"), [(0.5, "scaled"), (1.0, "scaled"), (1.5, "affine"), (2.0, "affine")], ids=str
)
def test_a_line_goes_through_0_if_it_misses_it_by_no_more_than_the_tolerance(height, kind):
    raw = [1.0, 2.0, 3.0, 6.0]
    assert fitted(exact(raw, [4 * x + height for x in raw], 0.25)).kind == kind
    assert fitted(exact(raw, [4 * x - height for x in raw], 0.25)).kind == kind


@pytest.mark.parametrize(("off", "known"), [(0.125, True), (0.1875, False)], ids=["at-the-edge", "past-it"])
def test_statistics_may_be_off_by_the_tolerance(off, known):
    # mean 3, population deviation 2: the tolerance is halved with the credit
    found = recognised(exact([1, 1, 5, 5], [off - 1, off - 1, off + 1, off + 1], 0.25))
    assert (found is not None) == known
    assert found is None or (found.kind, found.spread) == ("whitened", 2.0)


@pytest.mark.parametrize(("off", "known"), [(0.125, True), (0.1875, False)], ids=["at-the-edge", "past-it"])
def test_what_is_off_a_line_is_not_whitened(off, known):
    # the line of least squares stays: its statistics are right, and only two numbers are not on it
    asked = exact([1, 1, 5, 5], [off - 1, -off - 1, 1, 1], 0.25)
    assert (recognised(asked) is not None) == known


def test_a_few_rows_of_credit_that_hardly_differs_rule_nothing_out():
    assert plausible(exact([2, 3], [1, 0], 0.25))
    assert not plausible(exact([2, 3.125], [1, 0], 0.25))
    nothing = exact([2, 3], [1, 0], 0.25)
    assert plausible(replace(nothing, counted=torch.zeros(1, 2, dtype=torch.bool)))


def test_raw_credit_is_recognised_within_its_tolerance():
    assert recognised(samples(RAW + 1e-10)) == Rescaling("none")
    assert recognised(samples(RAW + 1e-8)) is None
    assert recognised(samples(RAW + 1e-8, tolerance=1e-7)) == Rescaling("none")


def test_a_factor_and_a_line_are_fitted_but_not_recognised():
    for came, kind in ((RAW * 0.25, "scaled"), (RAW * 0.25 + 0.125, "affine")):
        assert recognised(samples(came)) is None
        found = fitted(samples(came))
        assert found is not None
        assert (found.kind, found.spread) == (kind, pytest.approx(4.0))
        assert torch.allclose(found.of(RAW), came)
        assert found.is_honest


def test_a_line_through_three_different_numbers_is_not_believed():
    raw = torch.tensor([[1.0, 2.0, 3.0, 3.0, 9.0, 0.0]], dtype=torch.float64)
    assert fitted(samples(raw * 0.25, raw)) is None
    assert fitted(samples(RAW * 0.25)) is not None
    assert fitted(samples(RAW * 0.25 + torch.tensor([0, 0, 0, 1e-10, 0, 0]).double())) is not None


def test_numbers_that_differ_by_less_than_rounding_are_one_number():
    raw = torch.tensor([[1.0, 1.0 + 1e-4, 2.0, 3.0, 9.0, 0.0]], dtype=torch.float64)
    assert fitted(samples(raw * 0.25, raw, tolerance=1e-2)) is None
    assert fitted(samples(raw * 0.25, raw, tolerance=1e-6)) is not None


@pytest.mark.parametrize(
    "came",
    [
        pytest.param(-RAW, id="falling"),
        pytest.param(RAW * 0, id="flat"),
        pytest.param(RAW.square(), id="bent"),
        pytest.param(torch.tensor([[1.0, 2.0, 3.0, 5.0, 0, 0]]).double(), id="one-wrong"),
        pytest.param(torch.full((1, 6), torch.nan).double(), id="nan"),
    ],
)
def test_what_is_no_rising_line_is_none(came):
    assert recognised(samples(came)) is None
    assert fitted(samples(came)) is None
    assert not plausible(samples(came))


def test_raw_credit_that_is_no_number_is_matched_by_nothing():
    raw = torch.where(torch.arange(6) == 2, torch.nan, RAW)
    assert recognised(samples(RAW, raw)) is None
    assert fitted(samples(RAW, raw)) is None


def test_equal_credit_is_whitened_to_0():
    flat = torch.full((1, 6), 2.0, dtype=torch.float64)
    assert recognised(samples(flat * 0, flat)).kind == "whitened"
    assert recognised(samples(flat + 1, flat)) is None
    assert plausible(samples(flat + 1, flat))  # a few rows of equal credit rule nothing out


def test_honest_statistics_are_those_of_the_sampled_tokens():
    found = honest(samples(RAW), "whitened")
    assert (found.centre, found.spread) == pytest.approx((3.0, math.sqrt(14 / 3)))
    assert honest(samples(RAW), "centred").spread == 1.0
    alone = Samples(RAW, RAW, torch.arange(6).unsqueeze(0) == 3, ENDS, VALID, 1e-9, 1e-12)
    assert (honest(alone, "whitened").centre, honest(alone, "whitened").spread) == (6.0, 1.0)
    flat = torch.full((1, 6), 2.0, dtype=torch.float64)
    assert honest(samples(flat, flat), "whitened").spread == 1.0


def test_a_map_says_what_it_is():
    assert str(Rescaling("none")) == "not normalised"
    assert str(Rescaling("scaled", 0.0, 4.0)) == "scaled by 0.25"
    assert str(Rescaling("affine", 0.5, 2.0)) == "affine (less 0.5, divided by 2)"


CREDIT = {
    "action_mask": [[1, 1, 1, 1, 0]],
    "rewards": [[-1.0, -1.0, -3.0, 6.0, 0.0]],
    "gamma": 1.0,
    "recipe": "to_go",
}


@pytest.mark.parametrize(
    ("advantages", "verdict", "said"),
    [
        pytest.param([1.0, 2.0, 3.0, 6.0, 0.0], "holds", "not normalised", id="none"),
        pytest.param([0.25, 0.5, 0.75, 1.5, 0.0], "holds", "scaled by 0.25", id="scaled"),
        pytest.param([0.5, 1.0, 1.5, 3.0, 0.0], "holds", "scaled by 0.5", id="halved"),
        pytest.param([-2.0, -1.0, 0.0, 3.0, 0.0], "holds", "centred (less 3, divided by 1)", id="centred"),
        pytest.param([1.5, 2.0, 2.5, 4.0, 0.0], "not checkable", "give the whole batch they are of", id="affine"),
    ],
)
def test_the_report_says_which_normalisation_was_recognised(advantages, verdict, said):
    found = {each.code: each for each in lint(CREDIT | {"advantages": [advantages]})}
    assert found["credit-differs"].verdict == "holds"
    assert found["whitening-smeared"].verdict == verdict
    assert said in found["whitening-smeared"].said


def test_returns_are_not_normalised():
    found = {each.code: each for each in lint(CREDIT | {"returns": [[0.25, 0.5, 0.75, 1.5, 0.0]]})}
    assert found["credit-differs"].verdict == "broken"


def test_without_any_rounding_all_different_numbers_count():
    assert fitted(exact([0.125, 0.25, 0.375, 0.75], [0.5, 1.0, 1.5, 3.0], 0.0)) == Rescaling("scaled", 0.0, 0.25)
