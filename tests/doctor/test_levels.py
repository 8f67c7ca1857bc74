"""What makes a sign a note, a warning or an error, and where nothing is said: a case on either side of every line."""

from __future__ import annotations

import pytest

from apportion.doctor import History, examine

FLAT = [0.4] * 24
UP = [0.3 + 0.01 * n for n in range(24)]
TOP = [0.95] * 24
DOWN = [0.6 - 0.01 * n for n in range(24)]


def always(value, count=24):
    return [value] * count


def rising(start, by, count=24):
    return [start + by * n for n in range(count)]


def case(code, level, name, settings=None, **columns):
    return pytest.param(code, level, columns, settings or {}, id=f"{code}-{name}")


CASES = [
    case("D01", "warning", "one-skipped-of-many", loss=always(0.1, 100), skipped_updates=[1, *always(0, 99)]),
    case("D01", "error", "more", loss=FLAT, skipped_updates=[1, *always(0, 23)]),
    case("D01", None, "none-skipped", loss=FLAT, skipped_updates=always(0)),
    case("D02", None, "a-little-is-masked", turns_per_rollout=always(2.0), environment_share=always(0.01)),
    case("D03", "warning", "a-little-apart", mismatch_mean=always(0.05)),
    case("D03", "error", "far-apart", mismatch_mean=always(0.11)),
    case("D03", "error", "apart-and-odd", mismatch_mean=always(0.05), surprise_over_entropy=always(1.15)),
    case("D03", None, "other-kernels", mismatch_mean=always(0.02), surprise_over_entropy=always(1.15)),
    case("D03", "error", "surprised-alone", surprise_over_entropy=always(1.4)),
    case("D03", "error", "too-little-surprised", surprise_over_entropy=always(0.7)),
    case("D03", None, "cut-to-top-p", {"top_p": 0.9}, surprise_over_entropy=always(0.7)),
    case("D04", "warning", "large", reward_highest=always(11.0)),
    case("D04", "error", "huge-below", reward_highest=always(0.0), reward_lowest=always(-60.0)),
    case("D04", "error", "runaway", reward_highest=rising(2.0, 1.0)),
    case("D04", "warning", "runaway-and-small", reward_highest=rising(0.5, 0.25)),
    case("D04", None, "of-size-1", reward_highest=always(1.0), reward_lowest=always(-1.0)),
    case("D04", "warning", "by-mean-and-spread", reward=always(40.0), reward_std=always(10.0)),
    case("D05", "error", "process-pays", length_p50=rising(50.0, 2.0), reward_process=UP, pass_rate=DOWN),
    case("D05", None, "process-rises-and-passing-too", length_p50=rising(50.0, 2.0), reward_process=UP, pass_rate=UP),
    case("D05", None, "length-stays", length_p50=always(50.0), reward_process=UP, pass_rate=DOWN),
    case(
        *("D05", "warning", "paid-within-a-batch"),
        **{"length_p50": always(50.0), "pass_rate": FLAT, "length_reward_correlation": always(0.9)},
        length_pass_correlation=always(0.1),
    ),
    case(
        *("D05", "error", "paid-and-longer-and-no-better"),
        **{"length_p50": rising(50.0, 2.0), "pass_rate": FLAT, "length_reward_correlation": always(0.9)},
        length_pass_correlation=always(0.1),
    ),
    case(
        *("D05", None, "longer-answers-pass-more"),
        **{"length_p50": rising(50.0, 2.0), "pass_rate": UP, "length_reward_correlation": always(0.9)},
        length_pass_correlation=always(0.9),
    ),
    case("D06", "error", "no-agreement", process_outcome_correlation=always(0.29), pass_rate=FLAT),
    case("D06", "warning", "no-agreement-but-better", process_outcome_correlation=always(0.29), pass_rate=UP),
    case("D06", "note", "some-agreement", process_outcome_correlation=always(0.4), pass_rate=FLAT),
    case("D06", None, "agreement", process_outcome_correlation=always(0.5), pass_rate=FLAT),
    case("D07", "error", "most", truncated=always(0.5), pass_rate=FLAT),
    case("D07", "warning", "most-and-better", truncated=always(0.5), pass_rate=UP),
    case("D07", "warning", "many", truncated=always(0.3), pass_rate=FLAT),
    case("D07", None, "some", truncated=always(0.2), pass_rate=FLAT),
    case("D08", "error", "most", zero_variance_groups=always(0.8), pass_rate=always(0.1)),
    case("D08", "warning", "half", zero_variance_groups=always(0.6), pass_rate=always(0.1)),
    case("D08", "warning", "most-and-better", zero_variance_groups=always(0.8), pass_rate=UP),
    case("D08", "note", "solved", zero_variance_groups=always(0.9), pass_rate=TOP),
    case("D08", None, "few", zero_variance_groups=always(0.4), pass_rate=FLAT),
    case(
        *("D08", "error", "alike-but-for-noise"),
        **{"reward_spread_in_group": always(4e-5), "reward_highest": always(0.5)},
        zero_variance_groups=always(0.0),
    ),
    case("D08", None, "small-rewards", reward_spread_in_group=always(4e-5), reward_highest=always(1e-4)),
    case("D09", "error", "frozen", error_over_constant=rising(2.0, 0.2), pass_rate=UP),
    case("D09", "warning", "biased", error_over_constant=always(1.3), pass_rate=UP),
    case("D09", "warning", "explains-nothing", explained_variance=always(0.0), pass_rate=UP),
    case("D09", "error", "explains-less-than-nothing", explained_variance=always(-0.3), pass_rate=FLAT),
    case("D09", None, "explains-some", explained_variance=always(0.2), error_over_constant=always(0.8), pass_rate=FLAT),
    case("D10", "error", "widens", value_gap=rising(0.1, 0.02), pass_rate=FLAT),
    case("D10", "warning", "widens-and-better", value_gap=rising(0.1, 0.02), pass_rate=UP),
    case("D10", None, "narrows", value_gap=rising(0.6, -0.02), pass_rate=FLAT),
    case("D10", None, "widens-by-a-hair", value_gap=rising(0.1, 0.002), pass_rate=FLAT),
    case("D11", "note", "learns-all-the-same", value_spread=always(0.02), pass_rate=UP),
    case("D11", "warning", "alike", value_spread=always(0.02), pass_rate=FLAT),
    case("D11", None, "process-tells-apart", value_spread=always(0.02), process_spread=always(0.5), pass_rate=FLAT),
    case("D12", "error", "still", kl=always(5e-4), kl_beta=always(5.0), pass_rate=FLAT),
    case("D12", "error", "little-and-held", kl=always(2e-3), kl_beta=always(5.0), pass_rate=FLAT),
    case("D12", None, "little-and-rises", kl=rising(1e-4, 1e-4), kl_beta=always(5.0), pass_rate=FLAT),
    case("D12", "warning", "next-to-nothing-and-rises", kl=rising(1e-5, 1e-5), kl_beta=always(5.0), pass_rate=FLAT),
    case("D12", None, "no-leash", kl=always(5e-4), kl_beta=always(0.0), pass_rate=FLAT),
    case("D12", None, "better", kl=always(5e-4), kl_beta=always(5.0), pass_rate=UP),
    case("D12", None, "moves", kl=always(6e-3), kl_beta=always(5.0), pass_rate=FLAT),
    case("D12", "error", "goes-back", kl=[0.3 * 0.85**n for n in range(24)], kl_beta=always(5.0), pass_rate=FLAT),
    case("D13", "warning", "many", clip_ratio=always(0.25), pass_rate=FLAT),
    case("D13", "error", "most", clip_ratio=always(0.35), pass_rate=FLAT),
    case("D13", None, "few", clip_ratio=always(0.15), pass_rate=FLAT),
    case("D14", "error", "gone", entropy=[0.8 * 0.9**n for n in range(24)], pass_rate=FLAT),
    case("D14", "warning", "gone-and-better", entropy=[0.8 * 0.9**n for n in range(24)], pass_rate=UP),
    case("D14", "warning", "half", entropy=[0.8 * 0.97**n for n in range(24)], pass_rate=FLAT),
    case("D14", None, "low-from-the-start", entropy=always(0.01), pass_rate=FLAT),
    case(
        *("D14", None, "as-the-starting-model-on-these-answers"),
        **{"entropy": [0.8 * 0.9**n for n in range(24)], "entropy_share_of_reference": rising(1.0, -0.01)},
        pass_rate=FLAT,
    ),
    case("D15", "error", "longer-and-worse", length_p50=rising(50.0, 2.0), pass_rate=DOWN),
    case("D15", "warning", "longer-and-less-reward", length_p50=rising(50.0, 2.0), reward=DOWN),
    case("D15", None, "longer", length_p50=rising(50.0, 2.0), pass_rate=FLAT),
    case("D15", None, "worse", length_p50=always(50.0), pass_rate=DOWN),
    case("D16", "error", "no-credit", mean_abs_advantage=always(0.005), loss=DOWN, pass_rate=FLAT),
    case("D16", "note", "solved", mean_abs_advantage=always(0.005), loss=DOWN, pass_rate=TOP),
    case("D16", None, "loss-stays", mean_abs_advantage=always(0.005), loss=FLAT, pass_rate=FLAT),
    case("D16", None, "credit", mean_abs_advantage=always(0.02), loss=DOWN, pass_rate=FLAT),
    case("D17", None, "both-rise", pass_rate_short_prompts=UP, pass_rate_long_prompts=UP),
    case("D17", "warning", "long-ones-stay", pass_rate_short_prompts=UP, pass_rate_long_prompts=FLAT),
    case("D19", "error", "falls", pass_rate=DOWN),
    case("D19", "warning", "reward-falls", reward=DOWN),
    case("D19", None, "wavers", pass_rate=[0.4, 0.3] * 12),
]


@pytest.mark.parametrize(("code", "level", "columns", "settings"), CASES)
def test_the_level_is_as_grave_as_it_is(code, level, columns, settings):
    diagnosis = examine(History.of_columns(columns, **settings))
    levels = {found.code: found.level for found in diagnosis.findings}
    assert levels.get(code) == level, [str(found) for found in diagnosis.findings]
