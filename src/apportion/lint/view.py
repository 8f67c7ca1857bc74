"""A view: what a computation of credit takes its batch to be. The right one, and where tokens stand in it.

Whoever computes credit decides which tokens are steps, whose they are, and what each was worth. Most faults are a wrong
decision there and not wrong arithmetic. So a known fault is the library's own GAE on a distorted view, and there is one
piece of arithmetic here for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.credit import gae
from apportion.lint.batch import Batch
from apportion.rollouts import Rollouts
from apportion.steps.splitters import every_token
from apportion.steps.spread import repeat


@dataclass(frozen=True, eq=False)
class View:
    """Tokens that are steps, the rollout of each, their rewards and the values before them."""

    mask: Bool[Tensor, "B T"]
    rollout_of: Int[Tensor, "B T"]
    rewards: Float[Tensor, "B T"]
    values: Float[Tensor, "B T"]
    gamma: float
    lam: float


def credit_of(view: View) -> Float[Tensor, "B T"]:
    """Work out GAE of every step of the view; 0 at other tokens."""
    steps = every_token(_rollouts(view))
    credit = gae(steps.sum(view.rewards), steps.first(view.values), gamma=view.gamma, lam=view.lam)
    return repeat(credit, steps)


def right(batch: Batch) -> View:
    """The batch as it is: a step is a sampled token of a scored rollout, and nothing else exists.

    A reward at a token that was not sampled belongs to no step. Where what was still expected after a rollout's end is
    given (`end_values`), it comes in with the last step. Without values: reward to go, V = 0 and lam = 1.
    """
    gamma, lam = batch.settings.gamma or 0.0, batch.settings.lam or 0.0
    values = batch.grids.get("values")
    if batch.settings.recipe == "to_go" or values is None:
        values, lam = torch.zeros_like(batch.grids["rewards"]), 1.0
    rewards = torch.where(batch.counted, batch.grids["rewards"], 0)
    if batch.end_values is not None:
        expected = batch.of_tokens(batch.end_values.nan_to_num())
        rewards = rewards + torch.where(batch.rollout_ends, gamma * expected, 0)
    return View(batch.counted, batch.rollout_of, rewards, values, gamma, lam)


def turn_of(batch: Batch) -> Int[Tensor, "B T"]:
    """Number the turns: runs of counted tokens of one rollout in one row, counted through the batch; 0 elsewhere."""
    ended = (batch.turn_ends | batch.rollout_ends)[batch.counted].long()
    return torch.zeros_like(batch.rollout_of).masked_scatter(batch.counted, ended.cumsum(0) - ended)


def next_values(batch: Batch, values: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The value before the same rollout's next counted token; 0 where there is none."""
    return torch.where(batch.goes_on, batch.at_next(values), 0)


def next_place(batch: Batch, grid: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """What stands at the next place of the row, whatever is there; 0 after the last."""
    return torch.nn.functional.pad(grid[:, 1:], (0, 1))


def _rollouts(view: View) -> Rollouts:
    """The view as rollouts of our own. What is no step is padding: it has no say."""
    owner = torch.where(view.mask, view.rollout_of, -1)
    count = int(owner.max()) + 1
    return Rollouts(
        tokens=torch.zeros_like(owner),
        rollout_of=owner,
        action_mask=view.mask,
        turns=owner,
        groups=torch.arange(count),
        outcome=torch.zeros(count, dtype=torch.float64),
        ended=torch.ones(count, dtype=torch.bool),
    )
