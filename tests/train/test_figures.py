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
