"""A critic in training: what it says of rollouts, and what it is taught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from apportion import Rollout, Rollouts, apportion, collate
from apportion.across import ALONE
from apportion.policy.causal import CausalPolicy
from apportion.train import critic as critics
from apportion.train.config import resolve
from apportion.train.critic import Critic
from apportion.train.made import recipe_of
from apportion.train.processes import Wrapping


def rollouts() -> Rollouts:
    """An answer that ended, right; one that was cut off; tokens of a tool in the first."""
    rows = [
        Rollout([5, 6, 7, 8, 9], [False, True, False, True, True], 0, 1.0, logprobs=[-1.0] * 5),
        Rollout([5, 7, 8], [False, True, True], 0, 0.0, ended=False, logprobs=[-1.0] * 3),
    ]
    return collate(rows)


def made(**settings: Any) -> Critic:
    config = resolve({"recipe": "ppo", "micro_batch": 1, "critic_updates": 1} | settings)
    critic = Critic(CausalPolicy.load("embedded"), config, Wrapping(ALONE))
    with torch.no_grad():
        critic.target.head.bias.fill_(0.5)
        torch.nn.init.normal_(critic.target.head.weight, generator=torch.Generator().manual_seed(0))
    return critic


def test_every_sampled_token_gets_the_value_of_the_state_before_it_and_a_cut_answer_that_of_its_end() -> None:
    critic, batch = made(), rollouts()
    everywhere = critic.target(batch.tokens, batch.valid_mask, batch.valid_mask)
    valued = critic.valued(batch)
    assert valued.step_values is not None
    assert valued.step_values.counts.tolist() == [3, 2]
    expected = torch.stack([everywhere[0, 0], everywhere[0, 2], everywhere[0, 3], everywhere[1, 0], everywhere[1, 1]])
    torch.testing.assert_close(valued.step_values.flat, expected.double(), rtol=1e-5, atol=1e-6)
    assert valued.end_values is not None
    assert valued.end_values.isnan().tolist() == [True, False]
    torch.testing.assert_close(valued.end_values[1], everywhere[1, 2], rtol=1e-5, atol=1e-6)


def test_with_lam_1_the_returns_are_the_outcome_and_what_is_expected_of_a_cut_answer() -> None:
    critic = made(critic_lam=1.0)
    valued = critic.valued(rollouts())
    lesson = critic._lesson(apportion(valued, recipe_of(critic.config)))
    assert valued.end_values is not None
    assert lesson.returns[0][lesson.mask[0]].tolist() == pytest.approx([1.0] * 3, abs=1e-6)
    assert lesson.returns[1][lesson.mask[1]].tolist() == pytest.approx([float(valued.end_values[1])] * 2, abs=1e-6)


def test_with_lam_0_the_returns_are_the_next_value_discounted() -> None:
    critic = made(critic_lam=0.0, gamma=0.5)
    valued = critic.valued(rollouts())
    assert valued.step_values is not None
    first = valued.step_values.flat[:3].tolist()
    lesson = critic._lesson(apportion(valued, recipe_of(critic.config)))
    expected = [0.5 * first[1], 0.5 * first[2], 1.0]
    assert lesson.returns[0][lesson.mask[0]].tolist() == pytest.approx(expected, abs=1e-6)


def taught(critic: Critic, times: int) -> list[dict[str, Any]]:
    recipe = recipe_of(critic.config)
    return [critic.learn(apportion(critic.valued(rollouts()), recipe), torch.Generator()) for _ in range(times)]


def test_a_critic_that_is_taught_the_same_again_learns_it() -> None:
    critic = Critic(
        CausalPolicy.load("embedded"),
        resolve({"recipe": "ppo", "learning_rate": 2e-3, "critic_updates": 2}),
        Wrapping(ALONE),
    )
    figures = taught(critic, 12)
    assert figures[-1]["critic_loss"] < figures[0]["critic_loss"] / 3


def test_what_is_asked_follows_what_learns_by_its_share() -> None:
    critic = made(critic_ema=0.75)
    before = [weights.clone() for weights in critic.target.parameters()]
    taught(critic, 1)
    now = critic.learner.weights()
    for old, slow, quick in zip(before, critic.target.parameters(), now, strict=True):
        torch.testing.assert_close(slow.detach(), 0.75 * old + 0.25 * quick)
    assert any(not torch.equal(old, quick) for old, quick in zip(before, now, strict=True))


@pytest.mark.parametrize(
    ("clip", "held"), [pytest.param(None, False, id="free"), pytest.param(0.01, True, id="clipped")]
)
def test_the_clip_holds_values_near_those_that_the_credit_used(clip: float | None, held: bool) -> None:
    critic = made(critic_clip=clip)
    critic.learner.take(critic.target.parameters())
    lesson = critic._lesson(apportion(critic.valued(rollouts()), recipe_of(critic.config)))
    lesson = replace(lesson, returns=lesson.values + 1, weights=lesson.mask / lesson.mask.sum())
    with torch.no_grad():
        critic.learner.module.head.bias.add_(0.5)  # half of the way, and too far for the clip
    loss = float(critic._loss(lesson).detach())
    assert loss == pytest.approx((1 - 0.01) ** 2 / 2 if held else 0.5**2 / 2, rel=1e-4)


def test_the_explained_variance_of_each_quarter_is_over_its_tokens() -> None:
    mask = torch.tensor([[False, True, True, True, True], [False, True, True, True, True]])
    values = torch.tensor([[0.0, 0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.5, 0.0]])
    returns = torch.tensor([[0.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    none = torch.zeros_like(returns)
    figures = critics._explained(critics.Lesson(none.long(), mask, mask, none, none.long(), mask, values, returns))
    by_quarter = [figures[f"explained_variance_quarter_{q}"] for q in (1, 2, 3, 4)]
    assert by_quarter == [0.0, 0.0, 0.0, 1.0]
    # left over: 1, 1, 0.5, 0, and 0, 0, -0.5, 0: of variance 2 / 7, as the returns are
    assert figures["explained_variance"] == pytest.approx(0.0)
    # squares of 1, 1, 0.5, 0, and 0, 0, 0.5, 0, against those of returns about their mean of a half
    assert figures["error_over_constant"] == pytest.approx(2.5 / 2.0)


def test_a_bias_counts_against_a_critic_though_it_explains_as_much() -> None:
    mask = torch.tensor([[False, True, True]])
    values, returns = torch.tensor([[0.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    none = torch.zeros_like(returns)
    lesson = critics.Lesson(none.long(), mask, mask, none, none.long(), mask, values, returns)
    assert critics._explained(lesson)["explained_variance"] == pytest.approx(1.0)
    assert critics._explained(lesson)["error_over_constant"] == pytest.approx(4 / 0.25)
    assert critics._explained(replace(lesson, returns=none))["error_over_constant"] is None
