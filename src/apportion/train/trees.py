"""Trees of answers: some from the prompt, the others from step boundaries inside those. All are trained on.

Source: TreeRL, arXiv:2506.11902.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.engine import Prefix
from apportion.values.monte_carlo import answers_in_tree, marked_tree, prefixes_before_steps


class Fork(NamedTuple):
    """A new answer is to leave rollout `of` before its step `step`, after the tokens of `prefix`."""

    of: int
    step: int
    prefix: Prefix


Choose = Callable[[Rollouts, StepMap, int, random.Random], list[Fork]]
"""(answers so far, their steps, new answers wanted a group, chance) -> where they fork off."""


def evenly(rollouts: Rollouts, steps: StepMap, count: int, chance: random.Random) -> list[Fork]:
    """As many from every answer, each from an equal share of its length."""
    forks = []
    for group in _forks_by_answer(rollouts, steps):
        for number in range(count if group else 0):
            turn, of = divmod(number, len(group))
            shares = (count - of - 1) // len(group) + 1  # forks that this answer gets
            place = (turn + chance.random()) / shares
            forks.append(group[of][int(place * len(group[of]))])
    return forks


def by_entropy(rollouts: Rollouts, steps: StepMap, count: int, chance: random.Random) -> list[Fork]:
    """Before the steps that were least foreseen: those of the highest mean -log p, whose mean is the entropy."""
    assert rollouts.logprobs is not None
    surprise = steps.sum(-rollouts.logprobs) / steps.lengths.clamp(min=1)
    return _highest(rollouts, steps, count, chance, lambda fork: float(surprise[fork.of, fork.step]))


def by_uncertainty(rollouts: Rollouts, steps: StepMap, count: int, chance: random.Random) -> list[Fork]:
    """Before the steps whose value is least known from the answers so far, which must be scored."""
    before = prefixes_before_steps(rollouts, steps)
    tree = marked_tree(before)
    answers_in_tree(tree, rollouts, before)
    return _highest(
        rollouts, steps, count, chance, lambda fork: tree.estimate(fork.prefix.group, fork.prefix.tokens).error
    )


BY_NAME: dict[str, Choose] = {"even": evenly, "entropy": by_entropy, "uncertainty": by_uncertainty}


def _highest(
    rollouts: Rollouts, steps: StepMap, count: int, chance: random.Random, of: Callable[[Fork], float]
) -> list[Fork]:
    """Of every group the forks of the highest number, no prefix twice while there are others; chance breaks ties."""
    chosen = []
    for group in _forks_by_answer(rollouts, steps):
        forks = list({fork.prefix: fork for answer in group for fork in answer}.values())
        chance.shuffle(forks)
        forks.sort(key=of, reverse=True)
        chosen += [forks[number % len(forks)] for number in range(count if forks else 0)]
    return chosen


def _forks_by_answer(rollouts: Rollouts, steps: StepMap) -> list[list[list[Fork]]]:
    """For every group, for each of its answers with more than one step: before which steps it can be left."""
    groups: list[list[list[Fork]]] = [[] for _ in rollouts.group_names]
    rows = zip(rollouts.groups.tolist(), prefixes_before_steps(rollouts, steps), strict=True)
    for n, (group, prefixes) in enumerate(rows):
        if len(prefixes) > 1:
            groups[group].append([Fork(n, k, prefix) for k, prefix in enumerate(prefixes) if k > 0])
    return groups
