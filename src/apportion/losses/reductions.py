"""Reductions: a weight for every token, made of the mask of the whole batch.

Where several processes share the batch, `across` adds up their counts (`apportion.across`): every token then weighs
what it would on one process. A rollout is on one of them only. DDP and FSDP average the processes' gradients, where
these weights are made to be added up; `averaged` makes up for that.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across


@runtime_checkable
class Reduction(Protocol):
    """From the mask of a batch, and whose each token is, to what each token weighs in its loss."""

    def __call__(
        self, mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"], *, across: Across = ALONE
    ) -> Float[Tensor, "B T"]: ...


def token_mean(
    mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"], *, across: Across = ALONE
) -> Float[Tensor, "B T"]:
    """Weigh every token alike: 1 / tokens. Long answers count for more. Source: DAPO, arXiv:2503.14476.

    >>> token_mean(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.3333, 0.0000],
            [0.3333, 0.3333]])
    """
    return mask.float() / across.sum(_tokens(mask)).clamp(min=1)


def sequence_mean(
    mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"], *, across: Across = ALONE
) -> Float[Tensor, "B T"]:
    """Weigh every rollout alike: 1 / (rollouts * its tokens). Tokens of short answers count for more.

    A rollout without a token that counts is not counted. Source: GRPO, arXiv:2402.03300.

    >>> sequence_mean(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.5000, 0.0000],
            [0.2500, 0.2500]])
    """
    tokens = _tokens_of_rollout(mask, rollout_of)
    return sequence_sum(mask, rollout_of, across=across) / tokens.clamp(min=1)


def sequence_sum(
    mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"], *, across: Across = ALONE
) -> Float[Tensor, "B T"]:
    """Weigh every token 1 / rollouts: the gradient of the mean log-probability of whole answers.

    >>> sequence_sum(torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 0], [1, 1]]))
    tensor([[0.5000, 0.0000],
            [0.5000, 0.5000]])
    """
    return mask.float() / across.sum(_rollouts(mask, rollout_of)).clamp(min=1)


def fixed_divisor(divisor: float) -> Reduction:
    """Weigh every token 1 / divisor, whatever the batch holds. Source: Dr. GRPO, arXiv:2503.20783.

    >>> fixed_divisor(8.0)(torch.tensor([[True, False]]), torch.tensor([[0, 0]]))
    tensor([[0.1250, 0.0000]])
    """

    def weights(
        mask: Bool[Tensor, "B T"], rollout_of: Int[Tensor, "B T"], *, across: Across = ALONE
    ) -> Float[Tensor, "B T"]:
        return mask.float() / divisor

    return weights


def averaged(weights: Float[Tensor, "B T"], across: Across) -> Float[Tensor, "B T"]:
    """Make up for gradients that are averaged over processes: weights * processes.

    >>> averaged(torch.tensor([[0.5]]), ALONE)
    tensor([[0.5000]])
    """
    return weights * across.size


def total(token_loss: Float[Tensor, "B T"], weights: Float[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Compute sum(weights * token_loss) over the tokens whose weight is not 0.

    >>> total(torch.tensor([[2.0, float("nan")]]), torch.tensor([[0.5, 0.0]]))
    tensor(1.)
    """
    return (torch.where(weights != 0, token_loss, 0) * weights).sum()


def _tokens(mask: Tensor) -> Tensor:
    """Tokens that count, of this process."""
    return mask.sum()


def _rollouts(mask: Tensor, rollout_of: Tensor) -> Tensor:
    """Rollouts with a token that counts, of this process."""
    return (torch.bincount(rollout_of[mask]) > 0).sum()


def _tokens_of_rollout(mask: Tensor, rollout_of: Tensor) -> Tensor:
    """Tokens that count of each token's rollout, which no two ranks share."""
    owner = rollout_of.clamp(min=0)
    counts = torch.bincount(owner[mask], minlength=int(owner.max()) + 1 if owner.numel() else 0)
    return counts[owner]


REDUCTIONS: dict[str, Reduction] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
}
