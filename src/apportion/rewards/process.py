"""Rewards of steps that are worked out from other numbers of the steps."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError


def min_form(
    rewards: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], *, temperature: float = 0.1
) -> Float[Tensor, "N K"]:
    """Weigh a rollout's step rewards so that they sum to (almost) the lowest: an answer is as good as its worst step.

    reward[k] = weight[k] * rewards[k], weight = softmax over the rollout's steps of -rewards / temperature.

    Law: weights are positive and sum to 1, so the sum lies between the lowest and the mean reward; as the temperature
    goes to 0 it becomes the lowest. With `credit.to_go` this is the min-form. Source: PURE, arXiv:2504.15275.

    Raises InputError unless the temperature is positive.

    >>> min_form(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, True]]), temperature=1e-3)
    tensor([[0., 0.]])
    """
    if not temperature > 0:
        raise InputError(f"the temperature of the min-form must be positive, got {temperature}")
    used = torch.where(mask, rewards, 0)
    weights = torch.where(mask, -used / temperature, -torch.inf).softmax(dim=1)
    return torch.where(mask, weights * used, 0)


def log_ratio(
    logprobs: Float[Tensor, "B T"],
    ref_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    beta: float = 0.05,
) -> Float[Tensor, "B T"]:
    """Compute implicit rewards, reward[t] = beta * (logprobs[t] - ref_logprobs[t]), of a model trained on outcomes.

    Both log-probabilities are of the reward model and of the reference it was trained from, not of the policy.
    Law: over a rollout they sum to beta times the log-ratio of the whole answer. Source: PRIME, arXiv:2502.01456.

    >>> log_ratio(torch.tensor([[-1.0, 9.0]]), torch.tensor([[-3.0, 0.0]]), torch.tensor([[True, False]]), beta=0.5)
    tensor([[1., 0.]])
    """
    return torch.where(mask, beta * (torch.where(mask, logprobs, 0) - torch.where(mask, ref_logprobs, 0)), 0)
