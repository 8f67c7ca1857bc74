"""Values from how likely the reference answer is: one forward pass a prefix, and nothing sampled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import exp
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.baselines import Value
from apportion.values.engine import Prefix
from apportion.values.monte_carlo import prefixes_before_steps


class Asked(NamedTuple):
    """How likely is `reference` right behind the prefix?"""

    prefix: Prefix
    reference: tuple[int, ...]


LogLikelihood = Callable[[Sequence[Asked]], Sequence[float]]
"""The sum of the log-probabilities of each reference's tokens, in nats, each token given all before it."""


def likelihood(log_likelihood: LogLikelihood, reference: Callable[[Hashable], Sequence[int]]) -> Value:
    """Make a value function: V[k] = (product of p over the reference's tokens)^(1 / tokens), behind step k's prefix.

    The mean log-probability a token, so that a long reference is not worth less than a short one; from 0 to 1. It is
    biased, for it asks for the reference's own words right away, but it costs no sampling. Before the first step it
    tells how easily the prompt alone leads to the reference.

    reference: the token ids of a group's reference answer, with whatever words lead over to it.
    Raises InputError for a reference without tokens.
    """

    def value(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        before = prefixes_before_steps(rollouts, steps)
        references = {group: _tokens(reference(group), group) for group in rollouts.group_names}
        asked = list(dict.fromkeys(Asked(prefix, references[prefix.group]) for row in before for prefix in row))
        sums = dict(zip(asked, log_likelihood(asked), strict=True)) if asked else {}
        grid = torch.zeros_like(rewards)
        for n, row in enumerate(before):
            for k, prefix in enumerate(row):
                tokens = references[prefix.group]
                grid[n, k] = exp(sums[Asked(prefix, tokens)] / len(tokens))
        return grid

    return value


def _tokens(reference: Sequence[int], group: Hashable) -> tuple[int, ...]:
    if not reference:
        raise InputError(f"group {group!r}: the reference answer has no tokens, so nothing can be likely or not")
    return tuple(reference)
