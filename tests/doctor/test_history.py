"""Histories and what is said of their course."""

from __future__ import annotations

import math

import pytest

from apportion.doctor import History, trend
from apportion.doctor.check import rooted
from apportion.doctor.checks import BY_CODE, CHECKS
from apportion.doctor.finding import Finding
from apportion.errors import InputError


def test_rows_of_one_step_are_put_together_and_stand_in_order():
    history = History.of_rows([{"step": 2, "kl": 0.2}, {"step": 1, "kl": 0.1}, {"step": 2, "loss": 3}])
    assert history.steps == (1, 2)
    assert history.series("kl").values == (0.1, 0.2)
    assert (history.series("loss").steps, history.series("loss").values) == ((2,), (3.0,))


def test_the_name_of_ours_goes_before_those_of_others_and_a_trackers_prefix_is_dropped():
    history = History.of_rows([{"train/kl": 0.2, "actor/kl_loss": 0.9, "train/global_step": 7}])
    assert (history.steps, history.series("kl").values, history.series("kl").called) == ((7,), (0.2,), "kl")


def test_both_halves_of_a_clip_fraction_are_added():
    history = History.of_columns({"clip_fraction_low": [0.1], "clip_fraction_high": [0.25]})
    assert history.series("clip_fraction").values == (0.35,)


def test_a_share_of_right_answers_is_found_among_the_parts_of_a_reward():
    names = {
        "rewards/format_reward/mean": [0.1],
        "rewards/accuracy_reward/std": [0.2],
        "rewards/accuracy_reward/mean": [0.3],
    }
    assert History.of_columns(names).series("pass_rate").values == (0.3,)


def test_what_is_no_number_is_left_out_and_remembered():
    history = History.of_columns({"loss": [1.0, math.nan, math.inf], "events": [[], "x", True]})
    assert history.series("loss").values == (1.0,)
    assert history.not_finite == {"loss": (1, 2)}
    assert "events" not in history.columns


def test_a_run_without_figures_is_refused():
    with pytest.raises(InputError, match="nothing to look at"):
        History.of_rows([{"step": 1, "note": "x"}])
    with pytest.raises(InputError, match="one length"):
        History.of_columns({"kl": [1.0], "loss": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("columns", "leashed"),
    [
        pytest.param({"kl": [0.1], "kl_beta": [0.0]}, False, id="weight-0"),
        pytest.param({"kl": [0.1], "kl_beta": [0.1]}, True, id="weight"),
        pytest.param({"actor/kl_loss": [0.1]}, True, id="verl-has-one-only-with-a-weight"),
        pytest.param({"kl": [0.1]}, None, id="unknown"),
    ],
)
def test_whether_a_kl_holds_the_policy(columns, leashed):
    assert History.of_columns(columns).leashed is leashed


@pytest.mark.parametrize(
    ("passed", "improved"),
    [
        pytest.param([0.3 + 0.02 * n for n in range(12)], True, id="rises"),
        pytest.param([0.4, 0.3] * 6, False, id="wavers"),
        pytest.param([0.4] * 12, False, id="flat"),
        pytest.param([0.95] * 12, True, id="at-the-top"),
        pytest.param([0.5 - 0.02 * n for n in range(12)], False, id="falls"),
        pytest.param([0.1, 0.8], False, id="too-short"),
    ],
)
def test_whether_a_run_improved(passed, improved):
    assert History.of_columns({"pass_rate": passed}).improved is improved


def test_a_span_begins_where_it_holds_by_the_median_of_five_and_is_the_last_third_at_most_lately():
    series = History.of_columns({"kl": [0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1]}).series("kl")
    assert series.span(lambda entry: entry > 0.5) == (5, 11)
    assert series.span(lambda entry: entry > 2) == (8, 11)


def test_spearman_is_the_textbook_one_with_ties():
    assert trend.spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826816681233)
    assert trend.spearman([1, 2, 3], [2, 2, 2]) == 0


def test_a_rise_must_be_large_enough_and_by_rank_and_long_enough():
    assert trend.rose(range(12), 8.0)
    assert not trend.rose(range(12), 9.0)
    assert not trend.rose([0, 9, 0, 9, 9, 0, 9, 0, 9, 0, 9, 5], 1.0)
    assert not trend.rose(range(7), 1.0)
    assert trend.fell(range(12, 0, -1), 8.0)


def finding(code, level="error"):
    return Finding(level, "x", code=code)


def order(*findings):
    return [found.code for found in rooted(findings, CHECKS)]


def test_a_cause_comes_before_what_it_explains_even_where_it_is_the_milder_one():
    assert "D07" in BY_CODE["D08"].causes
    assert order(finding("D08"), finding("D07", "warning")) == ["D07", "D08"]
    assert rooted([finding("D08"), finding("D07")], CHECKS)[1].follows == ("D07",)


def test_errors_come_before_warnings_and_in_the_order_of_checks():
    assert order(finding("D17", "note"), finding("D14"), finding("D06", "warning"), finding("D04")) == [
        *("D04", "D14", "D06", "D17")
    ]


def test_a_mild_finding_is_lifted_only_by_what_it_explains():
    assert order(finding("D07", "warning"), finding("D06")) == ["D06", "D07"]
