"""Known faults of credit for whole answers: each a wrong view of the answers, with the check that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from apportion import recipes
from apportion.lint import names
from apportion.lint.answers import Answers, by_rollout
from apportion.lint.batch import Batch
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap

GROUPS, EQUAL = "group-statistics", "equal-group-credit"
REWARD, UNSAMPLED = "reward-lost", "reward-unsampled"


@dataclass(frozen=True)
class AnswerFault:
    """A wrong view of the answers, in a few words, and the code of the check that it breaks."""

    code: str
    name: str
    change: Callable[[Answers], Answers]
    seen_in: str = ""

    def __str__(self) -> str:
        return f"{self.name} (as in {self.seen_in})" if self.seen_in else self.name


def possible(batch: Batch, recipe: str) -> Iterator[AnswerFault]:
    """The faults that can show on this batch: faults of the reward, of who votes, of the recipe, of the groups."""
    yield AnswerFault(UNSAMPLED, "rewards at tokens that were not sampled are counted", _all_rewards(batch))
    yield AnswerFault(REWARD, "only the reward at the last token counts", _last_reward(batch), "SkyRL 0.4's pass@n")
    yield from VOTES
    for other in recipes.BY_NAME:
        if other != recipe and names.whole_answer_recipe(other) is not None:
            yield AnswerFault(GROUPS, f"these are the numbers of recipe {other}", _by_recipe(other))
    count = len(batch)
    yield AnswerFault(GROUPS, "the whole batch is one group", _regrouped(torch.zeros(count, dtype=torch.int64)))
    for size in (size for size in range(2, count) if count % size == 0):
        name = f"groups are windows of {size} in the order of the batch, not their ids"
        yield AnswerFault(GROUPS, name, _regrouped(torch.arange(count) // size))


def unscored_as_zero(answers: Answers) -> Answers:
    return replace(answers, reward=answers.reward.nan_to_num())


def silent_voting(answers: Answers) -> Answers:
    return replace(answers, acted=torch.ones_like(answers.acted))


def everybody_voting(answers: Answers) -> Answers:
    return silent_voting(unscored_as_zero(answers))


def alone_with_its_reward(answers: Answers) -> Answers:
    """A rollout alone in its group is compared with nothing."""
    usual = answers.recipe.value

    def value(rollouts: Rollouts, steps: StepMap, rewards: Tensor) -> Tensor:
        alone = torch.bincount(rollouts.groups[rollouts.votes], minlength=len(rollouts))[rollouts.groups] < 2
        return torch.where(alone.unsqueeze(1), 0, usual(rollouts, steps, rewards))

    return replace(answers, recipe=replace(answers.recipe, value=value))


VOTES = (
    AnswerFault(GROUPS, "rollouts that were not scored vote with reward 0", unscored_as_zero),
    AnswerFault(GROUPS, "rollouts without a sampled token vote", silent_voting),
    AnswerFault(GROUPS, "rollouts that were not scored, or sampled nothing, vote", everybody_voting),
    AnswerFault(EQUAL, "a rollout alone in its group keeps its reward", alone_with_its_reward, "verl 0.9's grpo, rloo"),
)


def _regrouped(groups: Tensor) -> Callable[[Answers], Answers]:
    return lambda answers: replace(answers, groups=groups)


def _by_recipe(name: str) -> Callable[[Answers], Answers]:
    return lambda answers: replace(answers, recipe=recipes.by_name(name))


def _all_rewards(batch: Batch) -> Callable[[Answers], Answers]:
    total = by_rollout(batch, batch.grids["rewards"].nan_to_num())
    return lambda answers: replace(answers, reward=torch.where(batch.scored, total, torch.nan))


def _last_reward(batch: Batch) -> Callable[[Answers], Answers]:
    last = by_rollout(batch, torch.where(batch.rollout_ends, batch.grids["rewards"], 0))
    return lambda answers: replace(answers, reward=torch.where(batch.scored, last, torch.nan))
