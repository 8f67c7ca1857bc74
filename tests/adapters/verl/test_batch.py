"""From tensors of verl to rollouts and back: who takes part, where rewards go, what a session is."""

from __future__ import annotations

import pytest
import torch

from apportion import InputError
from apportion.adapters.verl.batch import laid_alone, paid_by_token, paid_in_sum, turns_of
from apportion.adapters.verl.rewards import carried
from apportion.adapters.verl.sessions import laid_as_handed
from verl_queue import handed_from, output


def alone(rewards, mask, groups, pay=paid_by_token):
    laid = laid_alone(torch.tensor(rewards), torch.tensor(mask).bool(), groups, pay)
    assert laid is not None
    return laid


def test_a_reward_on_a_token_outside_the_mask_is_the_outcome_of_the_action_before_it():
    rollouts = alone([[0.0, 0.0, 1.0]], [[1, 1, 0]], ["p"]).rollouts
    assert rollouts.outcome.tolist() == [1.0]
    assert rollouts.step_rewards is None


def test_a_reward_before_the_last_action_is_a_step_reward_and_the_total_stays():
    rollouts = alone([[0.25, 0.5, 0.0, 1.0]], [[1, 0, 1, 0]], ["p"]).rollouts
    assert rollouts.step_rewards.rows() == [(0.75, 0.0)]
    assert rollouts.outcome.tolist() == [1.0]


def test_in_sum_it_does_not_matter_where_a_reward_stands():
    assert alone([[0.25, 0.5, 1.0]], [[0, 1, 0]], ["p"], paid_in_sum).rollouts.outcome.tolist() == [1.75]


@pytest.mark.parametrize("pay", [paid_in_sum, paid_by_token], ids=["in sum", "by token"])
def test_a_reward_that_is_no_number_means_not_scored_and_leaves_the_others_alone(pay):
    rollouts = alone([[0.0, float("nan")], [0.5, 1.0]], [[1, 1], [1, 1]], ["p", "p"], pay).rollouts
    assert rollouts.votes.tolist() == [False, True]
    assert (
        float(rollouts.outcome[1] + (0 if rollouts.step_rewards is None else rollouts.step_rewards.flat.sum())) == 1.5
    )


def test_a_reward_that_is_no_number_early_in_an_answer_leaves_it_without_step_rewards():
    rollouts = alone([[float("nan"), 0.0, 1.0], [0.0, 0.5, 1.0]], [[1, 1, 1]] * 2, ["p", "p"]).rollouts
    assert rollouts.votes.tolist() == [False, True]
    assert rollouts.step_rewards.rows() == [(0.0, 0.0, 0.0), (0.0, 0.5, 0.0)]


def test_rows_of_padding_are_left_out_and_get_zeros_back():
    laid = alone([[0.0, 1.0], [0.0, 0.0]], [[1, 1], [0, 0]], ["p", "pad"])
    assert laid.rows.tolist() == [0]
    assert laid.back(torch.tensor([[2.0, 3.0]])).tolist() == [[2.0, 3.0], [0.0, 0.0]]


def test_a_row_that_was_rejected_whole_still_counts_in_its_group():
    laid = alone([[0.0, 1.0], [0.0, 0.0]], [[0, 0], [1, 1]], ["p", "p"])
    assert laid.rollouts.votes.tolist() == [True, True]
    assert laid.rollouts.outcome.tolist() == [1.0, 0.0]


def test_a_batch_without_any_action_is_no_batch():
    assert laid_alone(torch.zeros(2, 3), torch.zeros(2, 3).bool(), ["p", "q"], paid_by_token) is None


def test_groups_are_numbered_as_they_come_and_keep_their_names():
    rollouts = alone([[1.0]] * 3, [[1]] * 3, ["q", "p", "q"]).rollouts
    assert rollouts.groups.tolist() == [0, 1, 0]
    assert rollouts.group_names == ("q", "p")


def test_an_index_of_another_length_is_refused():
    with pytest.raises(InputError, match="index has 1 entries for 2 rows"):
        alone([[1.0]] * 2, [[1]] * 2, ["p"])


def test_turns_change_where_a_tool_speaks_and_with_every_row_of_a_rollout():
    mask = torch.tensor([[True, True, False, True], [False, True, True, True], [True, False, False, True]])
    assert turns_of(mask, torch.tensor([0, 0, 1])).tolist() == [[0, 0, 1, 2], [3, 4, 4, 4], [0, 1, 1, 2]]


def test_prompts_and_answers_stand_side_by_side_and_come_back_to_the_answers():
    handed = handed_from([output("p_0_0", "ab", score=1.0), output("q_0_0", "abc", prompt="a")])
    laid = laid_as_handed(handed.scores, handed, paid_by_token)
    assert laid.rollouts.tokens.tolist() == [[0, 1, 0, 1, 0], [0, 0, 0, 1, 2]]
    assert laid.rollouts.valid_mask.tolist() == [[True, True, True, True, False], [False, True, True, True, True]]
    assert laid.rollouts.action_counts.tolist() == [2, 3]
    assert laid.back(laid.rollouts.tokens.float()).tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 2.0]]


def test_outputs_of_a_session_are_one_rollout_in_order_paid_once():
    rows = [output("p_0_1", "bc", score=1.0), output("p_1_0", "a", score=0.5), output("p_0_0", "ab", score=1.0)]
    handed = handed_from(rows)
    laid = laid_as_handed(handed.scores, handed, paid_by_token)
    assert laid.rollouts.ids == ("p_0", "p_1")
    assert laid.rows.tolist() == [2, 0, 1]
    assert laid.rollouts.rollout_of[:, 2:].tolist() == [[0, 0], [0, 0], [1, -1]]
    assert laid.rollouts.outcome.tolist() == [1.0, 0.5]
    assert laid.rollouts.step_rewards is None
    assert laid.rollouts.group_names == ("p",)


def test_rows_that_verl_filled_a_batch_up_with_are_left_out():
    handed = handed_from([output("p_0_0", "ab", score=1.0), output("pad1_0_0", "a", mask=[0])], padding={"pad1_0_0"})
    assert laid_as_handed(handed.scores, handed, paid_by_token).rollouts.ids == ("p_0",)
    only = handed_from([output("pad1_0_0", "a", mask=[0])], padding={"pad1_0_0"})
    assert laid_as_handed(only.scores, only, paid_by_token) is None


def test_an_answer_in_which_nothing_was_sampled_keeps_its_score_and_has_no_vote():
    handed = handed_from([output("p_0_0", "ab", mask=[0, 0], score=1.0), output("p_1_0", "ab", score=0.5)])
    rollouts = laid_as_handed(handed.scores, handed, paid_by_token).rollouts
    assert rollouts.outcome.tolist() == [1.0, 0.5]
    assert rollouts.votes.tolist() == [False, True]
    assert rollouts.step_rewards is None


def test_text_is_spelled_with_a_place_for_every_token_when_it_is_asked_for():
    handed = handed_from([output("p_0_0", "a\nb"), output("p_0_1", "c", prompt="d")])
    assert laid_as_handed(handed.scores, handed, paid_by_token).rollouts.texts == (None,)
    handed.wants_text = True
    rollouts = laid_as_handed(handed.scores, handed, paid_by_token).rollouts
    assert rollouts.texts == ("aba\nbdc",)
    assert rollouts.offsets[1][rollouts.valid_mask[1]].tolist() == [[5, 6], [6, 7]]


def test_step_rewards_of_the_reward_function_stand_beside_its_outcome():
    info = {"apportion_outcome": 0.5, "apportion_step_rewards": "[0.25, 0.75]", "apportion_step_values": "[0.5, 1.0]"}
    handed = handed_from([output("p_0_0", "a\nb", score=1.5, info=info), output("p_1_0", "ab", score=0.25)])
    rollouts = laid_as_handed(handed.scores, handed, paid_by_token).rollouts
    assert rollouts.outcome.tolist() == [0.5, 0.25]
    assert rollouts.step_rewards.rows() == [(0.25, 0.75), None]
    assert rollouts.step_values.rows() == [(0.5, 1.0), None]


def test_what_the_reward_manager_carries_is_what_arrives():
    rows = [
        output(key, "a\nb", score=came["reward_score"], info=came["reward_extra_info"])
        for key, came in (
            ("p_0_0", carried([0.25, 0.5])),
            ("p_1_0", carried(1.0)),
            ("p_2_0", carried({"score": 0.5, "step_values": [0.5, 0.25]})),
        )
    ]
    handed = handed_from(rows)
    rollouts = laid_as_handed(handed.scores, handed, paid_by_token).rollouts
    assert rollouts.outcome.tolist() == [0.0, 1.0, 0.5]
    assert rollouts.step_rewards.rows() == [(0.25, 0.5), None, None]
    assert rollouts.step_values.rows() == [None, None, (0.5, 0.25)]


def test_step_rewards_beside_a_kl_penalty_in_the_reward_are_refused():
    handed = handed_from([output("p_0_0", "ab", score=1.0, info={"apportion_step_rewards": "[1.0]"})])
    with pytest.raises(InputError, match=r"actor\.use_kl_loss=True"):
        laid_as_handed(handed.scores - 0.125, handed, paid_by_token)


def test_a_kl_penalty_in_the_reward_stays_on_the_tokens_of_every_output():
    handed = handed_from([output("p_0_0", "ab", score=1.0), output("p_0_1", "bc", score=1.0)])
    rollouts = laid_as_handed(handed.scores - 0.125, handed, paid_by_token).rollouts
    assert rollouts.step_rewards.rows() == [(-0.125, -0.125, -0.125, 0.0)]
    assert rollouts.outcome.tolist() == [0.875]


def test_values_of_the_critic_are_taken_at_sampled_tokens_only():
    handed = handed_from([output("p_0_0", "abc", mask=[1, 0, 1], values=[0.25, 9.0, 0.5])])
    assert laid_as_handed(handed.scores, handed, paid_by_token).rollouts.step_values.rows() == [(0.25, 0.5)]


def test_log_probabilities_come_along_at_sampled_tokens():
    handed = handed_from([output("p_0_0", "abc", mask=[1, 0, 1])])
    found = laid_as_handed(handed.scores, handed, paid_by_token).rollouts.logprobs[0, 2:]
    assert found[[0, 2]].tolist() == [-0.5, -0.5]
    assert bool(found[1].isnan())


def test_a_key_that_names_no_session_and_a_grid_of_another_shape_are_refused():
    handed = handed_from([output("p_0_x", "ab")])
    with pytest.raises(InputError, match="row 0: its key is 'p_0_x'; expected PROMPT_SESSION_OUTPUT"):
        laid_as_handed(handed.scores, handed, paid_by_token)
    with pytest.raises(InputError, match=r"\(1, 3\), handed over \(1, 2\)"):
        laid_as_handed(torch.zeros(1, 3), handed, paid_by_token)


def test_step_scores_that_are_no_list_are_refused():
    with pytest.raises(InputError, match="apportion_step_rewards must be a list"):
        handed_from([output("p_0_0", "ab", info={"apportion_step_rewards": "1.5"})])
