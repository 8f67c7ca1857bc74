"""Monte-Carlo values: continue each prefix several times and take the mean score.

Source: VinePPO, arXiv:2410.01679; Math-Shepherd, arXiv:2312.08935.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.baselines import Value


class Prefix(NamedTuple):
    """Prompt and answer of a group up to some step; `sampled` of the tokens are the policy's."""

    group: Hashable
    tokens: tuple[int, ...]
    sampled: int


# Continue every prefix once; the continuation's token ids come back.
Continue = Callable[[list[Prefix]], list[list[int]]]
# Score a whole answer (prompt and all) of a group; None = could not be scored.
Score = Callable[[Hashable, Sequence[int]], float | None]


def monte_carlo(continue_once: Continue, score: Score, *, samples: int = 6) -> Value:
    """Make a value function: V[k] = mean score of `samples` continuations of the text before step k.

    Identical prefixes are continued once. Standard error of a value: sqrt(V (1 - V) / samples) for scores of 0 and 1.
    Raises InputError where no continuation of a prefix could be scored.
    """
    if samples < 1:
        raise InputError(f"Monte-Carlo values need at least 1 sample a prefix, {samples} were asked for")

    def value(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        before = _prefixes(rollouts, steps)
        distinct = list(dict.fromkeys(prefix for row in before for prefix in row))
        continuations = continue_once([prefix for prefix in distinct for _ in range(samples)])
        means = {}
        for i, prefix in enumerate(distinct):
            answers = [[*prefix.tokens, *more] for more in continuations[i * samples : (i + 1) * samples]]
            means[prefix] = _mean([score(prefix.group, answer) for answer in answers], prefix.group)
        grid = torch.zeros_like(rewards)
        for n, row in enumerate(before):
            grid[n, : len(row)] = torch.tensor([means[prefix] for prefix in row], dtype=rewards.dtype)
        return grid

    return value


def _prefixes(rollouts: Rollouts, steps: StepMap) -> list[list[Prefix]]:
    """For each rollout that has a vote, all tokens before each of its steps."""
    prefixes: list[list[Prefix]] = []
    cells = steps.cell.flatten()
    for row, place, votes in zip(rollouts.rows(), rollouts.places(), rollouts.votes.tolist(), strict=True):
        own = cells[place].tolist()
        first = {cell: t for t, cell in reversed(list(enumerate(own))) if cell >= 0}
        ends = sorted(first.values()) if votes else []
        prefixes.append([Prefix(row.group, tuple(row.tokens[:end]), sum(row.action_mask[:end])) for end in ends])
    return prefixes


def _mean(scores: list[float | None], group: Hashable) -> float:
    known = [score for score in scores if score is not None]
    if not known:
        raise InputError(f"group {group!r}: none of {len(scores)} continuations of a prefix could be scored")
    return sum(known) / len(known)
