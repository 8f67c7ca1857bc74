"""Losses of the policy: what pushes the log-probability of a token by its advantage."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.losses.ratios import probability_ratio
from apportion.losses.tokens import kept


def policy_gradient(
    logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -advantages[t] * logprobs[t].

    Source: REINFORCE, Williams 1992; for language models arXiv:2402.14740.

    >>> policy_gradient(torch.tensor([[-1.0, -2.0]]), torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]))
    tensor([[0.5000, 0.0000]])
    """
    return torch.where(mask, -kept(advantages, mask) * kept(logprobs, mask), 0)


def ppo_clip(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -min(ratio[t] * A[t], clip(ratio[t], 1 - clip_low, 1 + clip_high) * A[t]).

    ratio[t] = exp(logprobs[t] - old_logprobs[t]). Identity: at ratio 1 the gradient is that of `policy_gradient`.
    Source: arXiv:1707.06347, eq. 7; separate bounds, arXiv:2503.14476.

    >>> ppo_clip(torch.tensor([[0.0]]), torch.tensor([[-1.0]]), torch.tensor([[2.0]]), torch.tensor([[True]]))
    tensor([[-2.4000]])
    """
    ratio = probability_ratio(logprobs, old_logprobs, mask)
    return _clipped(ratio, advantages, mask, clip_low, clip_high)


def gspo_token(
    logprobs: Float[Tensor, "B T"],
    sequence_ratios: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Float[Tensor, "B T"]:
    """Compute `ppo_clip` with ratio[t] = stopped(s[t]) * exp(logprobs[t] - stopped(logprobs[t])).

    s = `sequence_ratio(logprobs, old_logprobs, mask, rollout_of)`: an answer is clipped as a whole, and every token
    keeps its own advantage. The gradient is -s[t] * A[t]. (One ratio an answer, and a gradient through it, would give
    every token the mean of the answer's advantages.) No gradient flows into s, so it may be worked out beforehand,
    where a micro-batch holds a part of the answer only.

    Identity: with s = `probability_ratio`, loss and gradient of `ppo_clip`. Source: GSPO-token, arXiv:2507.18071,
    with its bounds.

    >>> gspo_token(torch.tensor([[-1.0, -1.0]]), torch.ones(1, 2), torch.tensor([[2.0, -1.0]]), torch.ones(1, 2).bool())
    tensor([[-2.,  1.]])
    """
    own = kept(logprobs, mask)
    ratio = kept(sequence_ratios.detach(), mask) * (own - own.detach()).exp()
    return _clipped(ratio, advantages, mask, clip_low, clip_high)


def cispo(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip_low: float = 1.0,
    clip_high: float = 0.2,
) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -stopped(clip(ratio[t], 1 - clip_low, 1 + clip_high)) * A[t] * logprobs[t].

    The weight is clipped, never the gradient: no token falls silent. A `clip_low` of 1 is no lower bound, as in the
    source, which gives no number for `clip_high`. Identity: inside the bounds, the gradient of `ppo_clip`.
    Source: MiniMax-M1, arXiv:2506.13585.

    >>> cispo(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), torch.tensor([[2.0]]), torch.tensor([[True]]))
    tensor([[2.]])
    """
    weight = probability_ratio(logprobs, old_logprobs, mask).detach().clamp(1 - clip_low, 1 + clip_high)
    return policy_gradient(logprobs, weight * kept(advantages, mask), mask)


def _clipped(ratio: Tensor, advantages: Tensor, mask: Tensor, clip_low: float, clip_high: float) -> Tensor:
    used = kept(advantages, mask)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.where(mask, -torch.minimum(ratio * used, clipped * used), 0)
