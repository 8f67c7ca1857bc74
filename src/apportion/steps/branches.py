"""The splitter of trees: a step is a node, the tokens from one parting of a group's answers to the next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch

from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap, number_steps


@dataclass
class _Twig:
    """A token in a group's tree. answers: those with a vote that run through it."""

    answers: int = 0
    children: dict[int, _Twig] = field(default_factory=dict)


def branches(rollouts: Rollouts) -> StepMap:
    """A step is a run of sampled tokens that the same answers of the group share; it ends where they part.

    Where the world answers them differently they part at the next token that each samples. Whether they were sampled
    as branches or only happen to begin alike makes no difference. An answer that parts from all others at its first
    token is one step, as with `whole`. Answers without a vote part from nobody.
    """
    rows, places, votes = rollouts.rows(), rollouts.places(), rollouts.votes.tolist()
    roots: dict[Hashable, _Twig] = {}
    for row, vote in zip(rows, votes, strict=True):
        twig = roots.setdefault(row.group, _Twig())
        for token in row.tokens:
            twig = twig.children.setdefault(token, _Twig())
            twig.answers += vote
    starts = torch.zeros(rollouts.tokens.numel(), dtype=torch.bool, device=rollouts.tokens.device)
    for row, place in zip(rows, places, strict=True):
        twig, parted = roots[row.group], False
        for at, token, sampled in zip(place.tolist(), row.tokens, row.action_mask, strict=True):
            following = twig.children[token]
            parted |= following.answers < twig.answers
            if parted and sampled:
                starts[at], parted = True, False
            twig = following
    return number_steps(rollouts, starts.view_as(rollouts.tokens))
