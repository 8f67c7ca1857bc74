import pytest
import torch

from apportion import Rollout, apportion, collate, recipes
from apportion.train.figures import PassRate, ledger_figures, pass_rate


def test_the_wilson_interval_of_8_in_10_is_the_textbook_one():
    low, high = PassRate(8, 10).interval
    assert (low, high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


@pytest.mark.parametrize("passed", [pytest.param(0, id="none"), pytest.param(20, id="all")])
def test_the_interval_never_leaves_0_to_1_and_holds_the_rate(passed):
    low, high = PassRate(passed, 20).interval
    assert 0 <= low <= passed / 20 <= high <= 1
    assert high - low > 0.1


def test_unscored_answers_are_not_counted_as_failed():
    assert pass_rate(torch.tensor([1.0, float("nan"), 0.0])) == PassRate(1, 2)


def batch(outcomes, **more):
    rows = [
        Rollout(tokens=[1, 2, 3], action_mask=[False, True, True], group=n // 2, outcome=o, ended=n != 0)
        for n, o in enumerate(outcomes)
    ]
    return collate(rows)


def test_the_figures_of_a_batch_are_those_worked_out_by_hand():
    figures = ledger_figures(apportion(batch([1.0, 0.0, 1.0, 1.0, None, 0.0]), recipes.by_name("dr_grpo")))
    assert figures["outcome_mean"] == pytest.approx(3 / 5)
    assert figures["pass_rate"] == pytest.approx(3 / 5)
    assert figures["pass_at_group"] == pytest.approx(2 / 3)
    assert figures["zero_variance_groups"] == pytest.approx(2 / 3)
    assert figures["mean_abs_advantage"] == pytest.approx((0.5 + 0.5) / 5)
    assert figures["truncated"] == pytest.approx(1 / 6)
    assert figures["unscored"] == pytest.approx(1 / 6)
    assert figures["length_p50"] == 2


def test_a_batch_without_any_score_has_undefined_figures_not_zeros():
    figures = ledger_figures(apportion(batch([None, None]), recipes.by_name("grpo")))
    assert figures["pass_rate"] is None
    assert figures["mean_abs_advantage"] is None


def test_process_and_outcome_reward_that_agree_correlate_and_those_that_do_not_do_not():
    def correlation(process):
        rows = [
            Rollout(tokens=[1, 2], action_mask=[False, True], group=0, outcome=o, step_rewards=(p,))
            for o, p in zip([1.0, 0.0, 1.0, 0.0], process, strict=True)
        ]
        return ledger_figures(apportion(collate(rows), recipes.by_name("grpo")))["process_outcome_correlation"]

    assert correlation([0.9, 0.1, 0.9, 0.1]) == pytest.approx(1)
    assert correlation([0.1, 0.9, 0.1, 0.9]) == pytest.approx(-1)
    assert correlation([0.5, 0.5, 0.5, 0.5]) is None


def answer(tokens, outcome, *, prompt=1, group=0, **more):
    mask = [False] * prompt + [True] * tokens
    return Rollout(tokens=[1] * len(mask), action_mask=mask, group=group, outcome=outcome, **more)


def figures_of(*rows, recipe="dr_grpo"):
    return ledger_figures(apportion(collate(list(rows)), recipes.by_name(recipe)))


def test_the_extremes_of_rewards_and_their_spread_within_groups_are_those_worked_out_by_hand():
    figures = figures_of(
        answer(2, 3.0), answer(2, 1.0), answer(2, -4.0, group=1), answer(2, -4.0, group=1), answer(2, None, group=1)
    )
    assert (figures["reward_lowest"], figures["reward_highest"]) == (-4.0, 3.0)
    assert figures["reward_spread_in_group"] == pytest.approx((1.0 + 0.0) / 2)


def test_length_goes_with_reward_where_longer_answers_are_paid_more_and_with_passing_where_they_pass():
    figures = figures_of(answer(1, 0.0), answer(2, 0.5), answer(3, 1.0), answer(4, 0.7))
    assert figures["length_reward_correlation"] == pytest.approx(1.3 / 2.65**0.5)
    assert figures["length_pass_correlation"] == pytest.approx(0.5 / 3.75**0.5)
    alike = figures_of(answer(2, 0.0), answer(2, 1.0))
    assert alike["length_reward_correlation"] is alike["length_pass_correlation"] is None


def test_passing_is_told_for_the_shorter_and_the_longer_half_of_prompts():
    figures = figures_of(
        answer(1, 1.0, prompt=2), answer(1, 1.0, prompt=2), answer(1, 1.0, prompt=5), answer(1, 0.0, prompt=5)
    )
    assert (figures["pass_rate_short_prompts"], figures["pass_rate_long_prompts"]) == (1.0, 0.5)
    alike = figures_of(answer(1, 1.0), answer(1, 0.0))
    assert alike["pass_rate_short_prompts"] is alike["pass_rate_long_prompts"] is None


def test_turns_and_the_environments_share_of_what_stands_behind_the_prompt():
    tool = Rollout(
        tokens=[1] * 6,
        action_mask=[False, True, True, False, False, True],
        turns=[0, 1, 1, 2, 2, 3],
        group=0,
        outcome=1.0,
    )
    figures = figures_of(tool, answer(4, 0.0))
    assert figures["turns_per_rollout"] == 1.5
    assert figures["environment_share"] == pytest.approx(2 / 9)


def test_the_spread_of_steps_is_that_of_answers_with_several():
    rows = [
        Rollout([1, 2], [True, True], 0, outcome, text="a\nb", offsets=[(0, 2), (2, 3)], **more)
        for outcome, more in (
            (1.0, {"step_values": (0.5, 0.75), "step_rewards": (0.0, 0.5)}),
            (0.0, {"step_values": (0.5, 0.0), "step_rewards": (0.25, 0.25)}),
        )
    ]
    figures = figures_of(*rows, recipe="vineppo")
    assert figures["value_spread"] == pytest.approx((0.25 + 0.5) / 2)
    assert figures["process_spread"] == pytest.approx((0.5 + 0.0) / 2)
    assert figures_of(answer(2, 1.0), answer(2, 0.0))["value_spread"] is None
