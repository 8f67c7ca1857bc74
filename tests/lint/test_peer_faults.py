"""Every fault that was found in another system is caught first and called by its name; what is right passes."""

from __future__ import annotations

import math

import pytest
import torch

from apportion.lint import lint
from lint import peer_faults as peers

PROMPT, TOOL = 2, 4


def dialogue() -> dict:
    """Three rollouts of several turns and mixed length: prompt, answer, tool, answer, padding. A critic that is not 0
    anywhere, and untrained at tool tokens and padding."""
    pictures = ["ppaaattttaa...", "ppaattaaattaaa", "ppaaaa........"]
    mask = [[int(letter == "a") for letter in picture] for picture in pictures]
    valid = [[int(letter != ".") for letter in picture] for picture in pictures]
    values = [
        [0.5 + 0.25 * math.sin(7 * r + t) + (0.0 if sampled else 3.0 + r) for t, sampled in enumerate(row)]
        for r, row in enumerate(mask)
    ]
    rewards = [[0.0] * len(row) for row in mask]
    for r, row in enumerate(mask):
        rewards[r][max(t for t, sampled in enumerate(row) if sampled)] = 1.0 - 0.75 * r
    columns = {"action_mask": mask, "valid_mask": valid, "values": values, "rewards": rewards}
    return columns | {"gamma": 0.96875, "lam": 0.875}


def in_turns() -> dict:
    """As `dialogue`, with a reward in every turn and within one."""
    batch = dialogue()
    batch["rewards"][0][3], batch["rewards"][0][4], batch["rewards"][1][3] = 0.25, 0.5, -0.5
    return batch


def astray() -> dict:
    """As `dialogue`, but the outcome stands on a tool token after the last action."""
    batch = dialogue()
    batch["rewards"] = [[0.0] * 14 for _ in range(3)]
    batch["rewards"][0][9], batch["rewards"][1][10], batch["rewards"][2][5] = 0.5, 1.0, -0.5
    return batch


def packed() -> dict:
    segments = [[0] * 6 + [1] * 3 + [2] * 5, [4] * 6 + [5] * 8, [7] * 14]
    batch = dialogue() | {"segments": segments, "valid_mask": [[1] * 14] * 3}
    batch["action_mask"] = [[1] * 14] * 3
    return batch


def kl_batch() -> dict:
    """A reference that is no better on tool tokens than anywhere else."""
    return dialogue() | {"kl": [[0.125 + 0.0625 * (t % 3) for t in range(14)] for _ in range(3)]}


def broken(batch: dict) -> list:
    return [found for found in lint(batch) if found.verdict == "broken"]


def whitened_wrong(batch: dict, mean: str, spread: str) -> dict:
    places = {"all": [[1] * 14] * 3, "valid": batch["valid_mask"], "sampled": batch["action_mask"]}
    return peers.whitened_over(batch, places[mean], places[spread])


def skyrl_whole() -> dict:
    """Walked over the response, then whitened with the mean of every place and the spread of the response."""
    batch = dialogue()
    zero = [[0.0] * 14 for _ in range(3)]
    full = peers.walked_over_the_response(batch | {"action_mask": batch["valid_mask"]})
    wrong = peers.whitened_over(batch | {"advantages": full["advantages"]}, [[1] * 14] * 3, batch["valid_mask"])
    assert zero != wrong["advantages"]
    return wrong


FAULTS = [
    pytest.param(
        lambda: peers.values_zeroed_then_walked(dialogue()),
        "gap-leak",
        "read as 0, and gamma and lam decay through the gap (as in OpenRLHF",
        id="openrlhf-gae",
    ),
    pytest.param(
        lambda: peers.returns_decayed_by_place(dialogue() | {"recipe": "to_go"}),
        "gap-leak",
        "decay at every token of a tool gap",
        id="openrlhf-reinforce-gamma",
    ),
    pytest.param(
        lambda: peers.summed_to_the_end(in_turns()),
        "dense-summed",
        "stand on the last token (as in OpenRLHF",
        id="openrlhf-turn-rewards",
    ),
    pytest.param(
        lambda: peers.walked_over_the_response(dialogue()),
        "gap-leak",
        "tool tokens are steps: their values bootstrap",
        id="skyrl-gae",
    ),
    pytest.param(skyrl_whole, "gap-leak", "tool tokens are steps", id="skyrl-gae-whitened"),
    pytest.param(
        lambda: whitened_wrong(peers.right(dialogue()), "all", "sampled"),
        "whitening-smeared",
        "mean over every place, padding too; spread over the sampled tokens",
        id="skyrl-unmasked-mean",
    ),
    pytest.param(
        lambda: whitened_wrong(peers.right(dialogue()), "valid", "valid"),
        "whitening-smeared",
        "mean over every token, those of the environment too; spread over every token",
        id="skyrl-statistics-of-tool-tokens",
    ),
    pytest.param(
        lambda: peers.walked_over_everything(dialogue()),
        "gap-leak",
        "every place of the row is a step",
        id="slime-gae",
    ),
    pytest.param(
        lambda: peers.kl_charged_everywhere(kl_batch(), 0.5),
        "reward-unsampled",
        "KL penalty is charged to tokens that were not sampled",
        id="slime-kl-on-tool-tokens",
    ),
    pytest.param(
        lambda: peers.walked_over_everything(
            dialogue() | {"action_mask": dialogue()["valid_mask"], "values": [[0.5] * 11 + [5.0] * 3] * 3}
        ),
        "padding-leak",
        "padding is walked through: its values bootstrap",
        id="roll-padding",
    ),
    pytest.param(
        lambda: peers.last_reward_of_turns(in_turns()),
        "reward-lost",
        "only the reward at the last token of a turn counts (as in ROLL",
        id="roll-last-token-of-segment",
    ),
    pytest.param(lambda: peers.right(astray()), "reward-unsampled", "", id="verl-reward-on-tool-token"),
    pytest.param(
        lambda: peers.reset_at_unsampled(dialogue()),
        "gap-leak",
        "every turn is an episode of its own",
        id="open-instruct-reset",
    ),
    pytest.param(
        lambda: peers.reset_at_unsampled(dialogue() | {"recipe": "to_go", "values": [[0.0] * 14] * 3, "lam": 1.0}),
        "gap-leak",
        "every turn is an episode of its own",
        id="verl-reinforce-plus-plus-reset",
    ),
    pytest.param(
        lambda: peers.longest_row_bootstrapped(dialogue()),
        "end-bootstrap",
        "longest row counts as cut off",
        id="areal-longest-row",
    ),
    pytest.param(
        lambda: peers.packed_as_one(packed()),
        "segment-leak",
        "packed rows are one rollout",
        id="packed-without-segments",
    ),
]


@pytest.mark.parametrize(("make", "code", "words"), FAULTS)
def test_a_fault_of_a_peer_is_the_first_broken_finding_and_is_named(make, code, words):
    first = broken(make())[0]
    assert first.code == code, first
    assert words in first.pattern


@pytest.mark.parametrize(
    "make", [dialogue, in_turns, packed, kl_batch], ids=["dialogue", "in-turns", "packed", "with-kl"]
)
def test_the_right_way_passes_every_check(make):
    assert broken(peers.right(make())) == []


def test_a_leak_is_not_blamed_on_the_checks_that_have_nothing_to_do_with_it():
    assert [found.code for found in broken(peers.values_zeroed_then_walked(dialogue()))] == ["gap-leak"]


def test_whitening_over_the_wrong_places_is_told_beside_the_leak_that_came_before_it():
    codes = [found.code for found in broken(skyrl_whole())]
    assert codes == ["gap-leak", "whitening-smeared"]


def test_the_reward_that_verl_drops_is_said_to_be_lost():
    found = broken(peers.right(astray()))[0]
    assert "no credit accounts for them: they are lost" in found.said
    assert (found.place.row, found.place.position, found.place.came) == (1, 10, 1.0)


# PEERS: 5 sampled tokens, 200 of a tool, 5 sampled; V = 0.5, R = 1, lam = 0.95.
LONG_GAP = {
    "action_mask": [[1] * 5 + [0] * 200 + [1] * 5],
    "values": [[0.5] * 210],
    "rewards": [[0.0] * 209 + [1.0]],
    "gamma": 1.0,
    "lam": 0.95,
}


def test_the_worked_example_of_a_long_gap_has_the_numbers_that_were_found():
    found = broken(peers.values_zeroed_then_walked(LONG_GAP))[0]
    assert (found.place.row, found.place.position) == (0, 0)
    assert found.place.came == pytest.approx(-0.407, abs=1e-3)
    assert found.place.expected == pytest.approx(0.315, abs=1e-3)
    turn = peers.values_zeroed_then_walked(LONG_GAP)["advantages"][0][4], peers.right(LONG_GAP)["advantages"][0][4]
    assert turn == pytest.approx((-0.5, 0.387), abs=1e-3)


def test_a_garbage_critic_on_tool_tokens_is_the_value_that_bootstraps():
    values = [[0.5] * 5 + [5.0] * 200 + [0.5] * 5]
    batch = LONG_GAP | {"values": values, "valid_mask": [[1] * 210]}
    found = broken(peers.walked_over_the_response(batch))[0]
    assert found.code == "gap-leak"
    assert found.place.came == pytest.approx(3.7, abs=0.1)


def test_values_of_padding_make_roll_numbers():
    batch = {
        "action_mask": [[1] * 5 + [0] * 5],
        "valid_mask": [[1] * 5 + [0] * 5],
        "values": [[0.5] * 5 + [5.0] * 5],
        "rewards": [[0.0] * 4 + [1.0] + [0.0] * 5],
        "gamma": 1.0,
        "lam": 0.95,
    }
    found = broken(peers.walked_over_everything(batch))[0]
    assert (found.code, found.place.position) == ("padding-leak", 0)
    assert found.place.expected == pytest.approx(0.407, abs=1e-3)
    assert found.place.came == pytest.approx(1.33, abs=1e-2)


def answers(rewards: list[float], groups: list[int], advantages: list[float], recipe: str = "grpo") -> dict:
    mask = [[1, 1, 0, 1]] * len(rewards)
    return {
        "action_mask": mask,
        "rewards": [[0.0, 0.0, 0.0, reward] for reward in rewards],
        "groups": groups,
        "advantages": [[a * m for m in row] for a, row in zip(advantages, mask, strict=True)],
        "recipe": recipe,
    }


def test_windows_in_place_of_groups_are_named():
    rewards, groups = [1.0, 5.0, 3.0, 7.0, 5.0, 2.0], [1, 2, 1, 3, 2, 1]
    found = broken(answers(rewards, groups, peers.grouped_by_position(rewards, 2)))[0]
    assert found.code == "group-statistics"
    assert "windows of 2" in found.pattern


def test_a_group_of_one_that_keeps_its_score_is_named():
    rewards, groups = [1.0, 5.0, 3.0], [1, 2, 1]
    found = broken(answers(rewards, groups, peers.singletons_keep_their_score(rewards, groups)))[0]
    assert found.code == "equal-group-credit"
    assert "alone in its group keeps its reward (as in verl" in found.pattern


def test_the_last_reward_taken_for_the_score_is_a_reward_lost():
    batch = answers([0.0, 1.0], [0, 0], [-0.5, 0.5], recipe="dr_grpo")
    batch["rewards"][0][0] = 0.5
    found = broken(batch)[0]
    assert found.code == "reward-lost"
    assert "only the reward at the last token counts (as in SkyRL" in found.pattern


def gradient_of(loss) -> dict:
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    advantages = torch.tensor([[0.5, -1.0, 0.0, 2.0], [1.0, 1.0, 1.0, 0.0]])
    old = torch.full((2, 4), -1.0)
    logprobs = torch.tensor([[-1.5, -0.5, -9.0, -0.75], [-1.0, -1.0, -1.25, -9.0]], requires_grad=True)
    loss(logprobs, old, advantages, mask).backward()
    return {"action_mask": mask, "advantages": advantages, "policy_loss_grad": logprobs.grad}


def test_one_ratio_for_a_whole_answer_collapses_its_credit():
    found = broken(gradient_of(peers.one_ratio_for_all))
    assert [each.code for each in found] == ["credit-collapsed"]
    assert "mean of its advantages" in found[0].pattern
    assert (found[0].place.row, found[0].place.position) == (0, 1)  # the first token's advantage is the mean


def test_the_token_form_of_the_sequence_ratio_holds():
    verdicts = {found.code: found.verdict for found in lint(gradient_of(peers.one_value_each_gradient))}
    assert verdicts["credit-collapsed"] == "holds"
