"""Values from the answers of the group themselves: nothing is sampled for them."""

from __future__ import annotations

from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.monte_carlo import answers_in_tree, marked_tree, prefixes_before_steps


def answers_through(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """V[k] = what the group's answers that run through the text before step k came to (`values.sample_tree`).

    In a tree of answers that is a Monte-Carlo value of every node, paid for by answers that are trained on themselves.
    Identity: where answers share nothing but the prompt, the group mean before the first step.
    """
    before = prefixes_before_steps(rollouts, steps)
    tree = marked_tree(before, span=(-inf, inf))  # whatever outcomes are; no error is asked for
    answers_in_tree(tree, rollouts, before)
    grid = torch.zeros_like(rewards)
    for n, row in enumerate(before):
        means = [tree.estimate(prefix.group, prefix.tokens).mean for prefix in row]
        grid[n, : len(row)] = torch.tensor(means, dtype=rewards.dtype)
    return grid
