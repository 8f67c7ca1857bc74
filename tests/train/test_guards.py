"""What guards see, do and say."""

from __future__ import annotations

import pytest

from apportion.train.config import resolve
from apportion.train.guards import Guards
from apportion.train.update import Terms

WELL = {"skipped_updates": 0, "entropy_share_of_reference": 0.9, "kl": 0.01}


def test_well_figures_are_no_event() -> None:
    guards = Guards.of(resolve({}))
    assert guards.begun() == guards.after(WELL) == []
    assert guards.terms == Terms(policy=1.0, kl_beta=0.0)


def test_the_policy_term_is_halved_while_the_entropy_is_low_and_each_change_is_told_once() -> None:
    guards = Guards.of(resolve({}))
    seen = []
    for share in (0.7, 0.59, 0.3, 0.6):
        told = guards.after(WELL | {"entropy_share_of_reference": share})
        seen.append((guards.terms.policy, [(event["guard"], event["seen"]) for event in told]))
    assert seen == [(1.0, []), (0.5, [("entropy", 0.59)]), (0.5, []), (1.0, [("entropy", 0.6)])]


def test_an_unknown_entropy_changes_nothing() -> None:
    guards = Guards.of(resolve({}))
    guards.after(WELL | {"entropy_share_of_reference": 0.1})
    assert guards.after(WELL | {"entropy_share_of_reference": None}) == []
    assert guards.terms.policy == 0.5


def test_the_weight_of_the_kl_follows_its_target_as_worked_out_by_hand() -> None:
    # 8 x 6 answers a step: at the most, a step moves the weight by 0.2 * 48 / 480 = 2 % of itself
    settings = {"model": "folder", "kl_beta": 0.1, "kl_target": 0.02, "kl_horizon": 480.0}
    guards = Guards.of(resolve(settings))
    assert [event["guard"] for event in guards.after(WELL | {"kl": 0.1})] == ["kl"]
    assert guards.kl_beta == pytest.approx(0.1 * 1.02)
    assert [event["guard"] for event in guards.after(WELL | {"kl": 0.0})] == ["kl"]
    assert guards.kl_beta == pytest.approx(0.1 * 1.02 * 0.98)
    assert guards.after(WELL | {"kl": 0.022}) == [], "near its target it moves a little and says nothing"
    assert guards.kl_beta == pytest.approx(0.1 * 1.02 * 0.98 * 1.01)


def test_a_figure_that_is_no_number_tells_nothing() -> None:
    guards = Guards.of(resolve({"kl_beta": 0.1, "kl_target": 0.02}))
    nothing = {"entropy_share_of_reference": float("nan"), "kl": float("inf")}
    assert guards.after(WELL | nothing) == []
    assert guards.state() == {"kl_beta": 0.1, "low": False}


def test_updates_of_the_critic_that_were_left_out_are_told_too() -> None:
    [event] = Guards.of(resolve({})).after(WELL | {"skipped_updates": 1, "critic_skipped_updates": 2})
    assert event["seen"] == 3


def test_without_a_target_the_weight_stays() -> None:
    guards = Guards.of(resolve({"kl_beta": 0.1}))
    assert guards.after(WELL | {"kl": 5.0}) == []
    assert guards.terms.kl_beta == 0.1


def test_an_update_that_was_left_out_is_told() -> None:
    [event] = Guards.of(resolve({})).after(WELL | {"skipped_updates": 2})
    assert (event["guard"], event["seen"]) == ("not_finite", 2)


def test_another_temperature_than_that_of_deployment_is_told_at_the_start() -> None:
    [event] = Guards.of(resolve({"deployment_temperature": 0.6})).begun()
    assert (event["guard"], event["seen"]) == ("temperature", 1.0)
    assert "0.6" in event["done"]
    assert Guards.of(resolve({"deployment_temperature": 1.0})).begun() == []
