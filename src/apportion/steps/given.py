"""Scores on the token grid, as other systems keep them: what is taken from it, and what is refused.

A reward that stands on a token which the policy did not sample would be dropped by most estimators without a word. Here
it is refused; to have it count, move it by `moved_to_actions` to the action that brought it about.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts, Scores


def rewards_of_tokens(rollouts: Rollouts, rewards: Float[Tensor, "B T"]) -> Scores:
    """Take a reward for every sampled token, for `Rollouts.step_rewards`.

    Raises InputError, naming row and position, for a reward other than 0 on a token that was not sampled, and for one
    that is not finite on a token that was.

    >>> from apportion import Rollout, collate
    >>> batch = collate([Rollout([7, 8, 9], [False, True, True], "g")])
    >>> rewards_of_tokens(batch, torch.tensor([[0.0, 0.5, 1.0]])).rows()
    [(0.5, 1.0)]
    """
    _refuse(rewards.ne(0) & ~rollouts.action_mask, rewards, "is a reward on a token that was not sampled")
    return values_of_tokens(rollouts, rewards)


def values_of_tokens(rollouts: Rollouts, values: Float[Tensor, "B T"]) -> Scores:
    """Take the value before every sampled token, for `Rollouts.step_values`; what stands elsewhere is not looked at.

    Raises InputError, naming row and position, for one that is not finite.
    """
    _refuse(~values.isfinite() & rollouts.action_mask, values, "stands on a sampled token, which needs a finite number")
    return Scores(values[rollouts.action_mask].double(), rollouts.action_counts)


def moved_to_actions(rollouts: Rollouts, rewards: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Move every reward on a token that was not sampled to the rollout's last action before it, or else its first.

    Law: the rewards of a rollout keep their sum. Identity: nothing astray, nothing moved.

    Raises InputError for a reward in padding, or in a rollout without any action.

    >>> from apportion import Rollout, collate
    >>> batch = collate([Rollout([7, 8, 9], [False, True, False], "g")])
    >>> moved_to_actions(batch, torch.tensor([[0.25, 0.5, 1.0]]))
    tensor([[0.0000, 1.7500, 0.0000]])
    """
    astray = rewards.ne(0) & ~rollouts.action_mask
    owner, actions = rollouts.rollout_of.flatten(), rollouts.action_mask.flatten().nonzero().squeeze(1)
    lost = astray & ~(rollouts.valid_mask & rollouts.of_tokens(rollouts.action_counts > 0))
    _refuse(lost, rewards, "is a reward with no action of its rollout to move it to")
    places = astray.flatten().nonzero().squeeze(1)
    before = torch.searchsorted(actions, places) - 1
    own = (before >= 0) & (owner[actions[before.clamp(min=0)]] == owner[places])
    targets = actions[torch.where(own, before, before + 1)]
    kept = torch.where(astray, 0, rewards).flatten()
    return kept.index_add(0, targets, rewards.flatten()[places]).view_as(rewards)


def _refuse(broken: Tensor, entries: Tensor, why: str) -> None:
    places = broken.nonzero()
    if len(places):
        row, position = places[0].tolist()
        raise InputError(f"row {row}, position {position}: {float(entries[row, position])} {why}")
