"""Credit of whole answers: one number a rollout, relative to its group.

As with tokens (`view`), a fault is the library's own recipe on a distorted view: other rewards, other groups, other
voters, or another recipe. What others add to a standard deviation, and by how many they divide, is theirs to choose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion import normalise
from apportion.ledger import Recipe
from apportion.lint.batch import Batch
from apportion.lint.rescaling import EPSILONS
from apportion.moments import Moments, moments
from apportion.rollouts import Rollouts


@dataclass(frozen=True, eq=False)
class Answers:
    """A recipe, and for each rollout its reward (NaN = not scored), its group, and if the policy sampled anything."""

    recipe: Recipe
    reward: Float[Tensor, " N"]
    groups: Int[Tensor, " N"]
    acted: Bool[Tensor, " N"]

    @property
    def votes(self) -> Bool[Tensor, " N"]:
        return self.acted & ~self.reward.isnan()

    @property
    def undecided(self) -> Bool[Tensor, " N"]:
        """Rollouts with a vote whose group holds no reward but theirs: nothing tells them apart."""
        return self.votes & (self.moments(self.groups).squares == 0)[self.groups]

    def moments(self, groups: Int[Tensor, " N"]) -> Moments:
        """Count, mean and spread of the rewards that vote in each of these groups."""
        return moments(self.reward.unsqueeze(1), self.votes.unsqueeze(1), groups)


def right(batch: Batch, recipe: Recipe) -> Answers:
    """The answers of a batch: the reward of a rollout is the sum of those of its sampled tokens.

    Where none was sampled it is that of all tokens; it has no say, but shows what it would do if it had.
    """
    earned = batch.counted | ~batch.of_tokens(batch.has_actions)
    total = by_rollout(batch, torch.where(earned, batch.grids["rewards"], 0).nan_to_num())
    groups = torch.arange(len(batch)) if batch.groups is None else batch.groups
    return Answers(recipe, torch.where(batch.scored, total, torch.nan), groups, batch.has_actions)


def by_rollout(batch: Batch, grid: Float[Tensor, "B T"]) -> Float[Tensor, " N"]:
    """Add up the tokens of each rollout."""
    return torch.zeros(len(batch), dtype=grid.dtype).index_add(0, batch.rollout_of[batch.valid], grid[batch.valid])


def credit_of(answers: Answers) -> Float[Tensor, " N"]:
    """Reward less value, before any normalisation; of rollouts without a vote, any number."""
    rollouts = _rollouts(answers)
    steps = answers.recipe.split(rollouts)
    reward = answers.reward.nan_to_num().unsqueeze(1)
    return answers.recipe.credit(reward, answers.recipe.value(rollouts, steps, reward))[:, 0]


def scalings(answers: Answers) -> Iterator[tuple[str, Float[Tensor, " N"]]]:
    """What the recipe may divide the credit of each rollout by, and how that is called; 1 where nothing spreads."""
    if answers.recipe.normalise is normalise.none:
        yield "not scaled", torch.ones_like(answers.reward)
        return
    for pool, groups in (("group", answers.groups), ("batch", torch.zeros_like(answers.groups))):
        found = answers.moments(groups)
        for kind, spread in (("sample", found.std), ("population", (found.squares / found.count).sqrt())):
            for epsilon in EPSILONS:
                plus = f" + {epsilon:g}" if epsilon else ""
                divisor = torch.where(spread > 0, spread + epsilon, 1)
                yield f"divided by the {pool}'s {kind} deviation{plus}", divisor[groups]


def _rollouts(answers: Answers) -> Rollouts:
    """The answers as rollouts of our own, of one token each."""
    count = len(answers.reward)
    column = torch.arange(count).unsqueeze(1)
    return Rollouts(
        tokens=torch.zeros_like(column),
        rollout_of=column,
        action_mask=answers.acted.unsqueeze(1),
        turns=torch.zeros_like(column),
        groups=answers.groups,
        outcome=answers.reward,
        ended=torch.ones(count, dtype=torch.bool),
    )
