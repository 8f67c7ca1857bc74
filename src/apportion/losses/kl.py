"""Estimates of KL(policy || reference) from the tokens that were sampled, and where each of them may stand.

A KL in the loss teaches by the gradient of the estimate; a KL in the reward, where the estimate is a number, by that
of the log-probability it multiplies. An estimate with the right mean may have the wrong gradient in either place.
Where the right ones are and why the others are wrong: `KL_IN_LOSS`, `KL_IN_REWARD`, `WRONG_GRADIENT`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError, did_you_mean
from apportion.losses.tokens import MOST_NATS, kept

Kl = Callable[[Float[Tensor, "B T"], Float[Tensor, "B T"], Bool[Tensor, "B T"]], Float[Tensor, "B T"]]


def kl_k1(
    logprobs: Float[Tensor, "B T"], ref_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Estimate KL(policy || reference) by logprobs - ref_logprobs: unbiased, may be negative.

    For a KL in the reward. Its expected gradient as a loss is 0: it teaches nothing there.
    Source: Schulman, Approximating KL divergence (2020); gradients, arXiv:2506.09477.

    >>> kl_k1(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), torch.tensor([[True]]))
    tensor([[0.5000]])
    """
    return kept(logprobs, mask) - kept(ref_logprobs, mask)


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


def check_kl(estimator: str, place: str) -> None:
    """Refuse an estimator where it teaches nothing, and warn where its gradient is not that of the KL.

    place: `loss` or `reward`. Nothing is said of k2 in the loss and of k1 in the reward.

    Raises InputError for k1 in the loss, and for an estimator or place that does not exist.

    >>> check_kl("k2", "loss")
    """
    for word, known in ((estimator, KL_BY_NAME), (place, _RIGHT)):
        if word not in known:
            raise InputError(f"a KL by {estimator!r} in the {place!r}: there is no {word!r}{did_you_mean(word, known)}")
    reason = WRONG_GRADIENT.get((estimator, place))
    if reason is None:
        return
    message = f"KL by {estimator} in the {place}: {reason}; {', '.join(_RIGHT[place])} has the gradient of the KL there"
    if (estimator, place) == ("k1", "loss"):
        raise InputError(message)
    warnings.warn(message, stacklevel=2)


KL_BY_NAME: dict[str, Kl] = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
KL_IN_LOSS: dict[str, Kl] = {"k2": kl_k2}
KL_IN_REWARD: dict[str, Kl] = {"k1": kl_k1}
WRONG_GRADIENT: dict[tuple[str, str], str] = {
    ("k1", "loss"): "its gradient is 0 on average, so it adds noise and teaches nothing",
    ("k3", "loss"): "its gradient is that of the forward KL(reference || policy)",
    ("k2", "reward"): "its mean is not the KL, and far from the reference it may push away from it",
    ("k3", "reward"): "it pushes by the reverse KL less the forward one, which cancel near the reference and may push "
    "away from it further off",
}
"""Estimator and place, and what is wrong with the gradient there."""
_RIGHT = {"loss": KL_IN_LOSS, "reward": KL_IN_REWARD}
