"""What the forward passes of a step show about the policy, summed up over all micro-batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion import losses
from apportion.across import ALONE, Across, Reduce

Figures = dict[str, int | float | None]


@dataclass(frozen=True, eq=False)
class Forward:
    """Log-probability and entropy of every sampled token, by the policy and, for the rows asked, by its reference."""

    logprobs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    asked: Bool[Tensor, " B"] | None = None
    ref_logprobs: Float[Tensor, "R T"] | None = None
    ref_entropy: Float[Tensor, "R T"] | None = None


SUMS = (
    *("tokens", "entropy", "clipped_low", "clipped_high", "mismatch", "mismatch_tokens"),
    *("kl", "own_entropy", "ref_entropy", "ref_tokens"),
    *("surprise", "expected_surprise"),
)
EXTREMES = ("ratio_lowest", "ratio_highest", "mismatch_highest")
NAMES = (
    *("kl", "entropy", "entropy_share_of_reference", "clip_fraction_low", "clip_fraction_high"),
    *("ratio_min", "ratio_max", "mismatch_mean", "mismatch_max", "surprise_over_entropy"),
)


class Tally:
    """Sums over the tokens that took part in the loss, of all processes once the figures are asked for.

    clipped_low, clipped_high: tokens whose gradient the clip took away, below and above.
    mismatch: |trainer's - sampler's log-probability| while the policy is still the one that sampled.
    surprise, expected_surprise: -log-probability and entropy by that same policy. What it sampled surprises it by its
        entropy on average, so that their ratio is near 1.
    kl, own_entropy, ref_entropy: over the rows that the reference was asked about.
    """

    def __init__(self, clip_low: float, clip_high: float, across: Across = ALONE) -> None:
        self._clip_low, self._clip_high, self._across = clip_low, clip_high, across
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._extremes = dict.fromkeys(EXTREMES, -math.inf)

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
        logprobs, entropy = forward.logprobs.detach(), forward.entropy.detach()
        ratio = losses.probability_ratio(logprobs, old_logprobs, mask)[mask]
        used = advantages[mask]
        self._add(
            tokens=ratio.numel(),
            entropy=entropy[mask].sum(),
            clipped_low=((ratio < 1 - self._clip_low) & (used < 0)).sum(),
            clipped_high=((ratio > 1 + self._clip_high) & (used > 0)).sum(),
        )
        self._reach(ratio_lowest=-ratio.min(), ratio_highest=ratio.max())
        if forward.asked is not None and forward.ref_logprobs is not None and forward.ref_entropy is not None:
            rows = forward.asked
            asked = mask[rows]
            self._add(
                kl=losses.kl_k3(logprobs[rows], forward.ref_logprobs, asked)[asked].sum(),
                own_entropy=entropy[rows][asked].sum(),
                ref_entropy=forward.ref_entropy[asked].sum(),
                ref_tokens=asked.sum(),
            )

    def add_mismatch(self, forward: Forward, old_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> None:
        """Count how far the trainer's log-probabilities are from the sampler's."""
        gap = (forward.logprobs.detach() - old_logprobs)[mask].abs()
        if gap.numel():
            self._add(mismatch=gap.sum(), mismatch_tokens=gap.numel())
            self._add(
                surprise=-forward.logprobs.detach()[mask].sum(), expected_surprise=forward.entropy.detach()[mask].sum()
            )
            self._reach(mismatch_highest=gap.max())

    def figures(self) -> Figures:
        """The figures of the step; None where no token took part."""
        sums = _together(self._sums, self._across.sum)
        highest = _together(self._extremes, self._across.largest)
        if not sums["tokens"]:
            return dict.fromkeys(NAMES)
        tokens, ref_tokens = sums["tokens"], sums["ref_tokens"]
        return {
            "kl": sums["kl"] / ref_tokens if ref_tokens else None,
            "entropy": sums["entropy"] / tokens,
            "entropy_share_of_reference": sums["own_entropy"] / sums["ref_entropy"] if sums["ref_entropy"] else None,
            "clip_fraction_low": sums["clipped_low"] / tokens,
            "clip_fraction_high": sums["clipped_high"] / tokens,
            "ratio_min": -highest["ratio_lowest"],
            "ratio_max": highest["ratio_highest"],
            "mismatch_mean": sums["mismatch"] / max(1, sums["mismatch_tokens"]),
            "mismatch_max": highest["mismatch_highest"],
            "surprise_over_entropy": sums["surprise"] / sums["expected_surprise"]
            if sums["expected_surprise"]
            else None,
        }

    def _add(self, **more: int | Tensor) -> None:
        for name, number in more.items():
            self._sums[name] += float(number)

    def _reach(self, **numbers: Tensor) -> None:
        for name, number in numbers.items():
            self._extremes[name] = max(self._extremes[name], float(number))


def _together(numbers: dict[str, float], reduce: Reduce) -> dict[str, float]:
    """The same numbers of all processes, summed or the largest of them."""
    return dict(zip(numbers, reduce(torch.tensor(list(numbers.values()), dtype=torch.float64)).tolist(), strict=True))
