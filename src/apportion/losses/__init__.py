"""Losses. A token loss is [B, T] in, [B, T] out, and never reduces; a reduction is a weight for every token.

Arguments that the caller masks (`mask` True = counts) are selected before anything is computed with them, so NaN, inf
or a log-probability of -200 at a place that does not count gives loss 0 and gradient 0. Log-probabilities are in nats
at the sampling temperature.

The loss of a batch is `total(token_loss, weights)` with the weights of the *whole* batch. Any cut of it into
micro-batches then adds up to the same loss and the same gradient, and the weight of one token can be looked at.
"""

from apportion.losses.entropy import entropy_bonus, top_entropy_mask
from apportion.losses.kl import (
    KL_BY_NAME,
    KL_IN_LOSS,
    KL_IN_REWARD,
    WRONG_GRADIENT,
    Kl,
    check_kl,
    kl_k1,
    kl_k2,
    kl_k3,
)
from apportion.losses.policy import cispo, gspo_token, policy_gradient, ppo_clip
from apportion.losses.ratios import Mismatch, mismatch, probability_ratio, product_ratio, sequence_ratio
from apportion.losses.reductions import (
    REDUCTIONS,
    Reduction,
    averaged,
    fixed_divisor,
    sequence_mean,
    sequence_sum,
    token_mean,
    total,
)
from apportion.losses.tokens import MOST_NATS
from apportion.losses.values import explained_variance, value_loss, value_loss_clipped

__all__ = [
    "KL_BY_NAME",
    "KL_IN_LOSS",
    "KL_IN_REWARD",
    "MOST_NATS",
    "REDUCTIONS",
    "WRONG_GRADIENT",
    "Kl",
    "Mismatch",
    "Reduction",
    "averaged",
    "check_kl",
    "cispo",
    "entropy_bonus",
    "explained_variance",
    "fixed_divisor",
    "gspo_token",
    "kl_k1",
    "kl_k2",
    "kl_k3",
    "mismatch",
    "policy_gradient",
    "ppo_clip",
    "probability_ratio",
    "product_ratio",
    "sequence_mean",
    "sequence_ratio",
    "sequence_sum",
    "token_mean",
    "top_entropy_mask",
    "total",
    "value_loss",
    "value_loss_clipped",
]
