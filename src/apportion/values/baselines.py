"""Values that need no model: from the rollouts themselves, or given with them.

A value function takes rollouts, their step map and the reward grid, and gives V [N, K]: `values[k]` is the expected
return from the state just before step k. A rollout that was not scored or sampled nothing has no vote.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.moments import Moments, moments
from apportion.rollouts import Rollouts, Scores
from apportion.steps.grid import StepMap, first_of

Value = Callable[[Rollouts, StepMap, Float[Tensor, "N K"]], Float[Tensor, "N K"]]


def zero(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V = 0: credit is the bare reward."""
    return torch.zeros_like(rewards)


def group_mean(
    rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"], *, across: Across = ALONE
) -> Float[Tensor, "N K"]:
    """V = the mean return of the rollout's group, at every step.

    Law: whole-answer credit sums to 0 over a group. Source: GRPO, arXiv:2402.03300.
    """
    found = _returns(rollouts, rewards, across)
    return _at_every_step(found.mean[rollouts.groups], steps, rewards)


def leave_one_out(
    rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"], *, across: Across = ALONE
) -> Float[Tensor, "N K"]:
    """V = the mean return of the other rollouts of the group, at every step.

    A rollout alone in its group has nothing to be compared with: its value is its own return, its credit 0.
    Identity: credit is n / (n - 1) times that of `group_mean`. Source: RLOO, arXiv:2402.14740.
    """
    found = _returns(rollouts, rewards, across)
    mean, others = found.mean[rollouts.groups], (found.count[rollouts.groups] - 1).clamp(min=1)
    return _at_every_step(mean + (mean - rewards.sum(1)) / others, steps, rewards)


def group_mean_to_go(
    rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"], *, across: Across = ALONE
) -> Float[Tensor, "N K"]:
    """V[k] = the mean reward of the group's steps * the steps that are left, k included.

    With credit to go, every step's reward is measured against the mean step of the group.
    Law: over a group, credit[k] - credit[k+1] sums to 0. Source: GRPO with process supervision, arXiv:2402.03300.
    """
    counted = steps.mask & rollouts.votes.unsqueeze(1)
    mean = moments(rewards, counted, rollouts.groups, across).mean[rollouts.groups].unsqueeze(1)
    left = steps.counts.unsqueeze(1) - torch.arange(steps.width, device=rewards.device)
    return torch.where(steps.mask, mean * left, 0).to(rewards.dtype)


def given(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V as it came with the rollouts (`step_values`), one a step or one a sampled token.

    Of token values, a step takes that of its first token: the state just before it.
    Raises InputError naming the first rollout without values.
    """
    why = "step_values, and this recipe takes its values as given; add them, or choose one with its own (grpo, rloo)"
    values = rollouts.required(rollouts.step_values, why)
    return steps.place(Scores(values.flat.to(rewards.dtype), values.counts), "step values", first_of)


def _returns(rollouts: Rollouts, rewards: Tensor, across: Across) -> Moments:
    """The moments of the returns of each group's voting rollouts."""
    return moments(rewards.sum(1, keepdim=True), rollouts.votes.unsqueeze(1), rollouts.groups, across)


def _at_every_step(value: Tensor, steps: StepMap, rewards: Tensor) -> Tensor:
    return torch.where(steps.mask, value.to(rewards.dtype).unsqueeze(1), 0)
