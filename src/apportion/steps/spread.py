"""Spreading: from one number a step to one number a sampled token. All others get 0."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.steps.grid import StepMap

Spread = Callable[[Float[Tensor, "N K"], StepMap], Float[Tensor, "B T"]]


def repeat(steps: Float[Tensor, "N K"], step_map: StepMap) -> Float[Tensor, "B T"]:
    """Every token of a step gets the step's number: the policy-gradient convention.

    The log-probability of a step is the sum of its tokens' log-probabilities, so the gradient of
    `advantage * log-probability` of the step gives each token the whole advantage.
    """
    return step_map.to_tokens(steps)


def share(steps: Float[Tensor, "N K"], step_map: StepMap) -> Float[Tensor, "B T"]:
    """The tokens of a step share its number equally. Law: they sum to it."""
    return step_map.to_tokens(steps / step_map.lengths.clamp(min=1).to(steps.dtype))


def last_token(steps: Float[Tensor, "N K"], step_map: StepMap) -> Float[Tensor, "B T"]:
    """The last token of a step gets all of it. Law: the tokens of a step sum to its number."""
    return torch.where(step_map.last_tokens(), step_map.to_tokens(steps), 0)
