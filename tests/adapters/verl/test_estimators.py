"""Estimators as verl calls them, worked by hand; and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from apportion import InputError, credit, normalise, recipes
from apportion.adapters.verl import TESTED
from apportion.adapters.verl.estimators import OF_VERL, all_of_them, estimator
from apportion.adapters.verl.handed import held, holding
from verl_queue import handed_from, output

CALLED = all_of_them()


def call(name, rewards, mask, index=None, **config):
    return CALLED[f"apportion_{name}"](
        token_level_rewards=torch.tensor(rewards), response_mask=torch.tensor(mask), config=config, index=index
    )


def call_handed(name, outputs, mask=None, **config):
    handed = handed_from(outputs)
    with holding(handed):
        return CALLED[f"apportion_{name}"](
            token_level_rewards=handed.scores,
            response_mask=handed.mask.long() if mask is None else torch.tensor(mask),
            config=config,
            index=["?"] * len(outputs),
        ), handed


def test_every_recipe_but_trees_is_there_under_our_name():
    assert set(OF_VERL) == set(recipes.BY_NAME) - {"tree"}
    assert set(CALLED) == {f"apportion_{name}" for name in OF_VERL}


def test_dr_grpo_is_the_outcome_over_the_mean_of_the_group_and_returns_are_the_outcome():
    advantages, returns = call("dr_grpo", [[0.0, 1.0], [0.0, 0.0]], [[1, 1], [1, 0]], ["p", "p"])
    assert advantages.tolist() == [[0.5, 0.5], [-0.5, 0.0]]
    assert returns.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_the_outcome_of_a_whole_answer_is_the_sum_of_its_rewards():
    assert call("reinforce", [[0.25, 0.5, 1.0]], [[1, 0, 1]], ["p"])[0].tolist() == [[1.75, 0.0, 1.75]]


def test_credit_is_silent_on_what_a_tool_said():
    advantages, _ = call("rloo", [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[1, 0, 1], [1, 0, 1]], ["p", "p"])
    assert advantages.tolist() == [[1.0, 0.0, 1.0], [-1.0, 0.0, -1.0]]


def test_an_outcome_on_a_rejected_token_counts_all_the_same():
    advantages, _ = call("reinforce", [[0.0, 0.0, 1.0]], [[1, 1, 0]], ["p"])
    assert advantages.tolist() == [[1.0, 1.0, 0.0]]


def test_an_answer_that_was_rejected_whole_counts_for_the_others_and_gets_nothing():
    advantages, returns = call("dr_grpo", [[0.0, 1.0], [0.0, 0.0]], [[0, 0], [1, 1]], ["p", "p"])
    assert advantages.tolist() == [[0.0, 0.0], [-0.5, -0.5]]
    assert returns.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_padding_of_verl_moves_no_statistic_of_the_batch():
    rewards, mask = [[0.0, 1.0], [0.0, 0.0]], [[1, 1], [1, 1]]
    alone, _ = call("reinforce_plus_plus", rewards, mask, ["p", "p"])
    padded, _ = call("reinforce_plus_plus", [*rewards, [0.0, 0.0]], [*mask, [0, 0]], ["p", "p", "pad"])
    assert torch.equal(padded, torch.cat([alone, torch.zeros(1, 2)]))


def test_a_batch_without_any_action_gets_zeros():
    advantages, returns = call("grpo", [[1.0, 0.0]], [[0, 0]], ["p"])
    assert advantages.tolist() == returns.tolist() == [[0.0, 0.0]]


def test_what_verl_handed_in_stays_as_it_was():
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 0], [1, 1]])
    CALLED["apportion_grpo"](token_level_rewards=rewards, response_mask=mask, config=None, index=["p", "p"])
    assert rewards.tolist() == [[0.0, 1.0], [0.0, 0.0]]
    assert mask.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("name", "needs"),
    [("ppo", "values"), ("vineppo", "values and text"), ("grpo_step", "values and text"), ("grpo_process", "text")],
)
def test_a_recipe_that_needs_more_than_an_estimator_gets_names_the_trainer(name, needs):
    with pytest.raises(InputError, match=rf"apportion_{name} needs {needs}, .*trainer_mode=apportion"):
        call(name, [[1.0]], [[1]], ["p"])


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_a_recipe_that_compares_answers_needs_to_know_their_prompts(name):
    with pytest.raises(InputError, match=f"apportion_{name} compares the answers to a prompt"):
        call(name, [[1.0]], [[1]])


def test_a_recipe_that_compares_none_needs_no_prompts():
    assert call("reinforce", [[0.5], [1.0]], [[1], [1]])[0].tolist() == [[0.5], [1.0]]


def test_settings_of_verl_that_a_recipe_would_not_do_are_refused():
    with pytest.raises(InputError, match=r"apportion_grpo has no discount, and algorithm.gamma is 0.99"):
        call("grpo", [[1.0]], [[1]], ["p"], gamma=0.99)
    with pytest.raises(InputError, match="choose apportion_dr_grpo"):
        call("grpo", [[1.0]], [[1]], ["p"], norm_adv_by_std_in_grpo=False)
    assert call("rloo", [[1.0]], [[1]], ["p"], norm_adv_by_std_in_grpo=False)[0].tolist() == [[0.0]]


def test_lines_are_credited_with_what_they_changed_where_the_trainer_hands_over_text_and_values():
    info = {"apportion_step_values": "[0.5, 0.25, 0.75]"}
    (advantages, returns), handed = call_handed("vineppo", [output("p_0_0", "a\nb\nc", score=1.0, info=info)])
    assert advantages.tolist() == [[-0.25, -0.25, 0.5, 0.5, 0.25]]
    assert returns.tolist() == [[0.25, 0.25, 0.75, 0.75, 1.0]]
    assert handed.ledger.recipe.name == "vineppo"
    assert held() is None


def test_step_rewards_of_lines_reach_them():
    info = {"apportion_outcome": 0.0, "apportion_step_rewards": "[1.0, 0.0]"}
    other = {"apportion_outcome": 0.0, "apportion_step_rewards": "[0.0, 1.0]"}
    rows = [output("p_0_0", "a\nb", score=1.0, info=info), output("p_1_0", "c\nd", score=1.0, info=other)]
    (advantages, _), _ = call_handed("grpo_process", rows)
    # rewards to go over the group's mean line of 0.5: (0, -0.5) and (0, 0.5), by the spread of +-0.5 of four lines
    half = 0.5 / torch.tensor([0.5, -0.5, -0.5, 0.5]).std().item()
    assert advantages.flatten().tolist() == pytest.approx([0.0, 0.0, -half, 0.0, 0.0, half])


def test_the_critics_values_are_skipped_where_a_tool_spoke():
    made = estimator("gae", lambda _: replace(recipes.ppo(gamma=1.0, lam=0.5), normalise=normalise.none))
    handed = handed_from([output("p_0_0", "abc", mask=[1, 0, 1], score=1.0, values=[0.5, 9.0, 0.25])])
    with holding(handed):
        advantages, returns = made(token_level_rewards=handed.scores, response_mask=handed.mask.long())
    assert advantages.tolist() == [[0.125, 0.0, 0.75]]
    assert returns.tolist() == [[0.625, 0.0, 1.0]]


def test_gamma_and_lam_are_those_of_verls_config():
    rows = [output("p_0_0", "ab", score=1.0, values=[0.5, 0.25]), output("p_1_0", "ab", values=[0.5, 0.25])]
    (_, returns), _ = call_handed("ppo", rows, gamma=0.5, lam=0.5)
    # credit[1] = 1 - 0.25; credit[0] = 0.5 * 0.25 - 0.5 + 0.25 * credit[1]
    assert returns[0].tolist() == [0.5 * 0.25 + 0.25 * 0.75, 1.0]


def test_under_the_trainer_credit_is_worked_out_before_rejection_and_silent_after_it():
    rows = [output("p_0_0", "abc", score=1.0, values=[0.5, 0.25, 0.75]), output("p_1_0", "abc", values=[0.5, 0.5, 0.5])]
    (whole, _), _ = call_handed("ppo", rows)
    (kept, _), handed = call_handed("ppo", rows, mask=[[1, 1, 0], [1, 1, 1]])
    assert torch.equal(kept, whole * torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))
    assert bool(handed.ledger.advantage[0, -1] != 0)


def test_outputs_of_one_session_get_the_credit_of_one_answer():
    rows = [output("p_0_0", "ab", score=1.0), output("p_1_0", "c"), output("p_0_1", "d", score=1.0)]
    (advantages, _), _ = call_handed("dr_grpo", rows)
    assert advantages.tolist() == [[0.5, 0.5], [-0.5, 0.0], [0.5, 0.0]]


def test_ppo_without_a_critic_names_what_is_missing():
    with pytest.raises(InputError, match=r"apportion_ppo needs values, and none came: .*critic.enable=True"):
        call_handed("ppo", [output("p_0_0", "ab", score=1.0)])


def test_a_recipe_of_ones_own_is_an_estimator_too():
    tokens = replace(recipes.reinforce(), split=recipes.ppo().split, credit=credit.to_go)
    advantages, _ = estimator("mine", lambda _: tokens)(torch.tensor([[0.5, 1.0]]), torch.tensor([[1, 1]]))
    assert advantages.tolist() == [[1.5, 1.0]]


def test_the_page_says_of_every_estimator_whether_verls_own_trainer_will_do():
    page = (Path(__file__).parents[3] / "docs" / "verl.md").read_text()
    assert f"`{TESTED}`" in page
    said = dict(re.findall(r"^\| `(apportion_\w+)` \| (?:refused: needs )?([^|]*) \|", page, re.M))
    assert list(said) == list(CALLED)
    for name, needs in said.items():
        assert answer(name) == ("yes" if needs == "yes" else f"{name} needs {needs}")


def answer(name):
    """What a recipe says under verl's own trainer."""
    try:
        call(name.removeprefix("apportion_"), [[1.0]], [[1]], ["p"])
    except InputError as error:
        return str(error).partition(",")[0]
    return "yes"
