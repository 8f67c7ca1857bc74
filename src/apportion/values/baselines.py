"""Values that need no model: from the rollouts themselves, or given with them.

A value function takes rollouts, their step map and the reward grid, and gives V [N, K]: `values[k]` is the expected
return from the state just before step k. A rollout that was not scored or sampled nothing has no vote.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap

Value = Callable[[Rollouts, StepMap, Float[Tensor, "N K"]], Float[Tensor, "N K"]]


def zero(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V = 0: credit is the bare reward."""
    return torch.zeros_like(rewards)


def group_mean(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V = the mean return of the rollout's group, at every step.

    Law: whole-answer credit sums to 0 over a group. Source: GRPO, arXiv:2402.03300.
    """
    returns, votes = rewards.sum(1), rollouts.votes
    totals, counts = _group_sums(returns, votes, rollouts.groups)
    mean = totals / counts.clamp(min=1)
    # the mean of equal returns is that return, not a rounding of it
    highest, lowest = _group_range(returns, votes, rollouts.groups)
    mean = torch.where(highest == lowest, highest, mean)
    return _at_every_step(mean[rollouts.groups], steps)


def leave_one_out(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V = the mean return of the other rollouts of the group, at every step.

    A rollout alone in its group has nothing to be compared with: its value is its own return, its credit 0.
    Identity: credit is n / (n - 1) times that of `group_mean`. Source: RLOO, arXiv:2402.14740.
    """
    returns, votes = rewards.sum(1), rollouts.votes
    totals, counts = _group_sums(returns, votes, rollouts.groups)
    others = (totals[rollouts.groups] - returns) / (counts[rollouts.groups] - 1).clamp(min=1)
    highest, lowest = _group_range(returns, votes, rollouts.groups)
    nothing_to_compare = (highest == lowest)[rollouts.groups] | (counts[rollouts.groups] < 2)
    return _at_every_step(torch.where(nothing_to_compare, returns, others), steps)


def given(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V as it came with the rollouts (`step_values`), one a step or one a sampled token.

    Of token values, a step takes that of its first token: the state just before it.
    Raises InputError naming the first rollout without values.
    """
    why = "step_values, and this recipe takes its values as given; add them, or choose one with its own (grpo, rloo)"
    rollouts.refuse_missing(rollouts.step_values, why)
    return steps.place(rollouts.step_values, "step values", lambda tokens: tokens[0]).to(rewards.dtype)


def _at_every_step(value: Tensor, steps: StepMap) -> Tensor:
    return torch.where(steps.mask, value.unsqueeze(1), 0)


def _group_sums(returns: Tensor, votes: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    size = int(groups.max()) + 1
    zeros = torch.zeros(size, dtype=returns.dtype, device=returns.device)
    totals = zeros.index_add(0, groups, torch.where(votes, returns, 0))
    counts = zeros.index_add(0, groups, votes.to(returns.dtype))
    return totals, counts


def _group_range(returns: Tensor, votes: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    blank = torch.zeros(int(groups.max()) + 1, dtype=returns.dtype, device=returns.device)
    where = groups[votes]
    highest = blank.scatter_reduce(0, where, returns[votes], "amax", include_self=False)
    lowest = blank.scatter_reduce(0, where, returns[votes], "amin", include_self=False)
    return highest, lowest
