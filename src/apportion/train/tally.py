"""What the forward passes of a step show about the policy, summed up over all micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from apportion import losses

Figures = dict[str, int | float | None]


@dataclass(frozen=True, eq=False)
class Forward:
    """Log-probability and entropy of every sampled token, by the policy and by its reference."""

    logprobs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    ref_logprobs: Float[Tensor, "B T"]
    ref_entropy: Float[Tensor, "B T"]


@dataclass
class Tally:
    """Sums over the tokens that took part in the loss.

    clipped_low, clipped_high: tokens whose gradient the clip took away, below and above.
    mismatch: |trainer's - sampler's log-probability| while the policy is still the one that sampled.
    """

    clip_low: float
    clip_high: float
    tokens: int = 0
    kl: float = 0.0
    entropy: float = 0.0
    reference_entropy: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    ratio_lowest: float = float("inf")
    ratio_highest: float = 0.0
    mismatch: float = 0.0
    mismatch_tokens: int = 0
    mismatch_highest: float = 0.0

    def add(
        self,
        forward: Forward,
        old_logprobs: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> None:
        """Count a micro-batch."""
        if not bool(mask.any()):
            return
        logprobs = forward.logprobs.detach()
        ratio = losses.probability_ratio(logprobs, old_logprobs, mask)[mask]
        used = advantages[mask]
        self.tokens += ratio.numel()
        self.kl += float(losses.kl_k3(logprobs, forward.ref_logprobs, mask)[mask].sum())
        self.entropy += float(forward.entropy.detach()[mask].sum())
        self.reference_entropy += float(forward.ref_entropy[mask].sum())
        self.clipped_low += int(((ratio < 1 - self.clip_low) & (used < 0)).sum())
        self.clipped_high += int(((ratio > 1 + self.clip_high) & (used > 0)).sum())
        self.ratio_lowest = min(self.ratio_lowest, float(ratio.min()))
        self.ratio_highest = max(self.ratio_highest, float(ratio.max()))

    def add_mismatch(self, forward: Forward, old_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> None:
        """Count how far the trainer's log-probabilities are from the sampler's."""
        gap = (forward.logprobs.detach() - old_logprobs)[mask].abs()
        if gap.numel():
            self.mismatch += float(gap.sum())
            self.mismatch_tokens += gap.numel()
            self.mismatch_highest = max(self.mismatch_highest, float(gap.max()))

    def figures(self) -> Figures:
        """The figures of the step; None where no token took part."""
        if not self.tokens:
            names = "kl entropy entropy_share_of_reference clip_fraction_low clip_fraction_high ratio_min ratio_max"
            return {**dict.fromkeys(f"{names} mismatch_mean mismatch_max".split()), "trained_tokens": 0}
        return {
            "kl": self.kl / self.tokens,
            "entropy": self.entropy / self.tokens,
            "entropy_share_of_reference": self.entropy / self.reference_entropy if self.reference_entropy else None,
            "clip_fraction_low": self.clipped_low / self.tokens,
            "clip_fraction_high": self.clipped_high / self.tokens,
            "ratio_min": self.ratio_lowest,
            "ratio_max": self.ratio_highest,
            "mismatch_mean": self.mismatch / max(1, self.mismatch_tokens),
            "mismatch_max": self.mismatch_highest,
            "trained_tokens": self.tokens,
        }
