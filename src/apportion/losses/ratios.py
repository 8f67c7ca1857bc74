"""How far the policy is from the one that sampled: probability ratios, and how the two disagree.

Ratios are 1 where a token does not count. `rollout_of` (-1 = padding) says whose token it is, so packed rows and
rollouts cut into several rows need no care; the rollout must be there as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.losses.tokens import MOST_NATS, kept, rollout_sum


def probability_ratio(
    logprobs: Float[Tensor, "B T"], old_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Compute exp(logprobs - old_logprobs), the exponent kept within +-20 nats; 1 where it does not count.

    Beyond that the ratio says no more than that sampler and trainer disagree, and its gradient is 0.
    """
    return _bounded_exp(kept(logprobs, mask) - kept(old_logprobs, mask))


def sequence_ratio(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    rollout_of: Int[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Compute exp(mean over the rollout's tokens of logprobs - old_logprobs), at each of them.

    The geometric mean of the tokens' ratios, so of the same size for short and long answers. Kept within +-20 nats.
    Identity: `probability_ratio` where every token is a rollout. Source: GSPO, arXiv:2507.18071.

    >>> new, old, rollout_of = torch.zeros(1, 2), torch.tensor([[0.0, -2.0]]), torch.tensor([[0, 0]])
    >>> sequence_ratio(new, old, rollout_of == 0, rollout_of)
    tensor([[2.7183, 2.7183]])
    """
    tokens = rollout_sum(mask.to(logprobs.dtype), mask, rollout_of)
    nats = _rollout_nats(logprobs, old_logprobs, mask, rollout_of) / tokens.clamp(min=1)
    return _bounded_exp(kept(nats, mask))


def product_ratio(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    rollout_of: Int[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Compute exp(sum over the rollout's tokens of logprobs - old_logprobs), at each of them.

    The importance weight of the whole answer; it grows or shrinks with length. Kept within +-20 nats.
    Identity: `sequence_ratio` to the power of the number of tokens.

    >>> new, old, rollout_of = torch.zeros(1, 2), torch.tensor([[0.0, -2.0]]), torch.tensor([[0, 0]])
    >>> product_ratio(new, old, rollout_of == 0, rollout_of)
    tensor([[7.3891, 7.3891]])
    """
    return _bounded_exp(kept(_rollout_nats(logprobs, old_logprobs, mask, rollout_of), mask))


@dataclass(frozen=True)
class Mismatch:
    """Trainer's minus sampler's log-probabilities, summed so that micro-batches and ranks add up; None = no token.

    outside: tokens whose ratio exp(difference) is not within the band.
    """

    tokens: int = 0
    total: float = 0.0
    total_abs: float = 0.0
    max_abs: float | None = None
    outside: int = 0

    @property
    def mean(self) -> float | None:
        """Near 0 even where single tokens are far off: look at `mean_abs`."""
        return self.total / self.tokens if self.tokens else None

    @property
    def mean_abs(self) -> float | None:
        return self.total_abs / self.tokens if self.tokens else None

    @property
    def share_outside(self) -> float | None:
        return self.outside / self.tokens if self.tokens else None

    def __add__(self, other: Mismatch) -> Mismatch:
        highest = [entry.max_abs for entry in (self, other) if entry.max_abs is not None]
        return Mismatch(
            tokens=self.tokens + other.tokens,
            total=self.total + other.total,
            total_abs=self.total_abs + other.total_abs,
            max_abs=max(highest, default=None),
            outside=self.outside + other.outside,
        )


def mismatch(
    logprobs: Float[Tensor, "B T"],
    sampler_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    band: tuple[float, float] = (0.9, 1.1),
) -> Mismatch:
    """Report logprobs - sampler_logprobs of one policy over the tokens that count.

    Before any update the two should agree; what is left is arithmetic (rounding to bfloat16 alone moves a ratio by
    5 %), another temperature, or a fault. The band is of the ratio, ends included.

    >>> mismatch(torch.tensor([[0.5, -0.5]]), torch.zeros(1, 2), torch.tensor([[True, True]])).mean_abs
    0.5
    """
    gap = logprobs.detach()[mask] - sampler_logprobs.detach()[mask]
    if not gap.numel():
        return Mismatch()
    ratio = gap.exp()
    low, high = band
    return Mismatch(
        tokens=gap.numel(),
        total=float(gap.sum()),
        total_abs=float(gap.abs().sum()),
        max_abs=float(gap.abs().max()),
        outside=int((~((ratio >= low) & (ratio <= high))).sum()),
    )


def _rollout_nats(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, rollout_of: Tensor) -> Tensor:
    return rollout_sum(kept(logprobs, mask) - kept(old_logprobs, mask), mask, rollout_of)


def _bounded_exp(nats: Tensor) -> Tensor:
    return nats.clamp(-MOST_NATS, MOST_NATS).exp()
