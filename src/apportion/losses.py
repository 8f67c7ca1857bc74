"""Losses. A token loss is [B, T] in, [B, T] out, and never reduces; a reduction is a weight for every token.

Arguments that the caller masks (`mask` True = counts) are selected before anything is computed with them, so NaN, inf
or a log-probability of -200 at a place that does not count gives loss 0 and gradient 0. Log-probabilities are in nats
at the sampling temperature.

The loss of a batch is `total(token_loss, weights)` with the weights of the *whole* batch. Any cut of it into
micro-batches then adds up to the same loss and the same gradient, and the weight of one token can be looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MOST_NATS = 20.0
"""Largest exponent that is taken of a difference of log-probabilities."""

Kl = Callable[[Float[Tensor, "B T"], Float[Tensor, "B T"], Bool[Tensor, "B T"]], Float[Tensor, "B T"]]
Reduction = Callable[[Bool[Tensor, "B T"], Int[Tensor, "B T"]], Float[Tensor, "B T"]]


def policy_gradient(
    logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -advantages[t] * logprobs[t].

    Source: REINFORCE, Williams 1992; for language models arXiv:2402.14740.

    >>> policy_gradient(torch.tensor([[-1.0, -2.0]]), torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]))
    tensor([[0.5000, 0.0000]])
    """
    return torch.where(mask, -_kept(advantages, mask) * _kept(logprobs, mask), 0)


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
    used = _kept(advantages, mask)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.where(mask, -torch.minimum(ratio * used, clipped * used), 0)


def probability_ratio(
    logprobs: Float[Tensor, "B T"], old_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Compute exp(logprobs - old_logprobs), the exponent kept within +-20 nats; 1 where it does not count.

    Beyond that the ratio says no more than that sampler and trainer disagree, and its gradient is 0.
    """
    return (_kept(logprobs, mask) - _kept(old_logprobs, mask)).clamp(-MOST_NATS, MOST_NATS).exp()


def kl_k1(
    logprobs: Float[Tensor, "B T"], ref_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Estimate KL(policy || reference) by logprobs - ref_logprobs: unbiased, may be negative.

    For a KL in the reward. Its expected gradient as a loss is 0: it teaches nothing there.
    Source: Schulman, Approximating KL divergence (2020); gradients, arXiv:2506.09477.

    >>> kl_k1(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), torch.tensor([[True]]))
    tensor([[0.5000]])
    """
    return _kept(logprobs, mask) - _kept(ref_logprobs, mask)


def kl_k2(
    logprobs: Float[Tensor, "B T"], ref_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Estimate KL by (logprobs - ref_logprobs)^2 / 2: biased, but as a loss its gradient is that of the reverse KL.

    Source: as `kl_k1`.

    >>> kl_k2(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), torch.tensor([[True]]))
    tensor([[0.1250]])
    """
    return kl_k1(logprobs, ref_logprobs, mask).square() / 2


def kl_k3(
    logprobs: Float[Tensor, "B T"], ref_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Estimate KL by exp(d) - 1 - d with d = ref_logprobs - logprobs: unbiased and never negative.

    As a loss its expected gradient is that of the forward KL(reference || policy). d is kept under 20 nats, where its
    gradient is 0. Source: as `kl_k1`.

    >>> kl_k3(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), torch.tensor([[True]]))
    tensor([[0.1065]])
    """
    d = -kl_k1(logprobs, ref_logprobs, mask).clamp(min=-MOST_NATS)
    return torch.expm1(d) - d


def entropy_bonus(entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Compute loss[t] = -entropy[t]: more entropy, lower loss.

    >>> entropy_bonus(torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]))
    tensor([[-0.5000, -0.0000]])
    """
    return -_kept(entropy, mask)


def token_mean(mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Weigh every token alike: 1 / tokens. Long answers count for more. Source: DAPO, arXiv:2503.14476.

    >>> token_mean(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.3333, 0.0000],
            [0.3333, 0.3333]])
    """
    return mask.float() / mask.sum().clamp(min=1)


def sequence_mean(mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Weigh every rollout alike: 1 / (rollouts * its tokens). Tokens of short answers count for more.

    A rollout without a token that counts is not counted. Source: GRPO, arXiv:2402.03300.

    >>> sequence_mean(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.5000, 0.0000],
            [0.2500, 0.2500]])
    """
    tokens = _tokens_of_rollout(mask, rollout_of)
    return sequence_sum(mask, rollout_of) / tokens.clamp(min=1)


def sequence_sum(mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Weigh every token 1 / rollouts: the gradient of the mean log-probability of whole answers.

    >>> sequence_sum(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.5000, 0.0000],
            [0.5000, 0.5000]])
    """
    rollouts = (torch.bincount(rollout_of[mask]) > 0).sum()
    return mask.float() / rollouts.clamp(min=1)


def fixed_divisor(divisor: float) -> Reduction:
    """Weigh every token 1 / divisor, whatever the batch holds. Source: Dr. GRPO, arXiv:2503.20783.

    >>> fixed_divisor(8.0)(torch.tensor([[True, False]]), torch.tensor([[0, 0]]))
    tensor([[0.1250, 0.0000]])
    """

    def weights(mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return mask.float() / divisor

    return weights


def total(token_loss: Float[Tensor, "B T"], weights: Float[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Compute sum(weights * token_loss) over the tokens whose weight is not 0.

    >>> total(torch.tensor([[2.0, float("nan")]]), torch.tensor([[0.5, 0.0]]))
    tensor(1.)
    """
    return (torch.where(weights != 0, token_loss, 0) * weights).sum()


def _kept(entries: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, entries, 0)


def _tokens_of_rollout(mask: Tensor, rollout_of: Tensor) -> Tensor:
    owner = rollout_of.clamp(min=0)
    counts = torch.bincount(owner[mask], minlength=int(owner.max()) + 1)
    return counts[owner]


KL_BY_NAME: dict[str, Kl] = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
REDUCTIONS: dict[str, Reduction] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
}
