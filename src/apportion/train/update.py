"""One batch of rollouts with their advantages in, better weights out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion import losses
from apportion.ledger import Ledger
from apportion.policy.causal import CausalPolicy
from apportion.train.config import TrainConfig

Figures = dict[str, int | float]


@dataclass(frozen=True, eq=False)
class Batch:
    """The columns that the loss needs, one rollout a row."""

    tokens: Int[Tensor, "B T"]
    rollout_of: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logprobs: Float[Tensor, "B T"]

    @classmethod
    def of(cls, ledger: Ledger) -> Batch:
        rollouts = ledger.rollouts
        assert rollouts.logprobs is not None
        return cls(
            tokens=rollouts.tokens,
            rollout_of=rollouts.rollout_of,
            action_mask=rollouts.action_mask,
            mask=ledger.mask,
            advantages=ledger.advantage,
            old_logprobs=rollouts.logprobs,
        )

    def take(self, rows: Tensor) -> Batch:
        """Some rows, cut to the longest of them."""
        width = int((self.rollout_of[rows] >= 0).sum(1).max())
        return Batch(**{f.name: getattr(self, f.name)[rows, :width] for f in fields(self)})


@dataclass
class Tally:
    """Sums over the tokens of a step's updates, from which its figures come."""

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

    def figures(self) -> Figures:
        tokens = max(1, self.tokens)
        return {
            "kl": self.kl / tokens,
            "entropy": self.entropy / tokens,
            "entropy_share_of_reference": self.entropy / self.reference_entropy if self.reference_entropy else 1.0,
            "clip_fraction_low": self.clipped_low / tokens,
            "clip_fraction_high": self.clipped_high / tokens,
            "ratio_min": self.ratio_lowest if self.tokens else 1.0,
            "ratio_max": self.ratio_highest if self.tokens else 1.0,
            "mismatch_mean": self.mismatch / max(1, self.mismatch_tokens),
            "mismatch_max": self.mismatch_highest,
            "trained_tokens": self.tokens,
        }


class Updater:
    """Policy, reference and optimiser, and how a ledger moves the first of them."""

    def __init__(self, policy: CausalPolicy, config: TrainConfig) -> None:
        self.policy = policy
        self.reference = policy.frozen_copy()
        self.config = config
        self.optimiser = torch.optim.AdamW(
            policy.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def update(self, ledger: Ledger, order: torch.Generator) -> Figures:
        """Train on the whole batch once, in `updates` shares. `order` draws which rollouts are in which share."""
        batch, tally = Batch.of(ledger), Tally()
        shares = torch.randperm(len(batch.tokens), generator=order).to(batch.tokens.device).chunk(self.config.updates)
        norms, losses_seen, skipped = [], [], 0
        for number, rows in enumerate(shares):
            loss, norm = self._step(batch.take(rows), tally, fresh=number == 0)
            losses_seen.append(loss)
            norms.append(norm)
            skipped += norm != norm or norm == float("inf")
        return {
            "loss": sum(losses_seen) / len(losses_seen),
            "grad_norm": sum(norms) / len(norms),
            "skipped_updates": skipped,
            **tally.figures(),
        }

    def _step(self, share: Batch, tally: Tally, *, fresh: bool) -> tuple[float, float]:
        """One step of the optimiser. `fresh`: the policy is still the one that sampled."""
        weights = losses.REDUCTIONS[self.config.reduction](share.mask, share.rollout_of)
        self.optimiser.zero_grad(set_to_none=True)
        loss_sum = 0.0
        for rows in self._micro_batches(share):
            part = share.take(rows)
            loss = losses.total(self._token_loss(part, tally, fresh), weights[rows, : part.tokens.shape[1]])
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.detach())
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.config.max_grad_norm))
        if torch.isfinite(torch.tensor([norm, loss_sum])).all():
            self.optimiser.step()
        return loss_sum, norm

    def _token_loss(self, part: Batch, tally: Tally, fresh: bool) -> Float[Tensor, "B T"]:
        config, valid = self.config, part.rollout_of >= 0
        logprobs, entropy = self.policy.logprobs(part.tokens, valid, part.action_mask, temperature=config.temperature)
        with torch.no_grad():
            ref_logprobs, ref_entropy = self.reference.logprobs(
                part.tokens, valid, part.action_mask, temperature=config.temperature
            )
        loss = losses.ppo_clip(
            logprobs,
            part.old_logprobs,
            part.advantages,
            part.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        kl = losses.KL_BY_NAME[config.kl_estimator](logprobs, ref_logprobs, part.mask)
        if config.kl_beta:
            loss = loss + config.kl_beta * kl
        if config.entropy_bonus:
            loss = loss + config.entropy_bonus * losses.entropy_bonus(entropy, part.mask)
        with torch.no_grad():
            k3 = losses.kl_k3(logprobs, ref_logprobs, part.mask)
            self._count(tally, part, logprobs, k3, entropy, ref_entropy, fresh)
        return loss

    def _count(
        self, tally: Tally, part: Batch, logprobs: Tensor, kl: Tensor, entropy: Tensor, ref_entropy: Tensor, fresh: bool
    ) -> None:
        mask = part.mask
        if not bool(mask.any()):
            return
        ratio = losses.probability_ratio(logprobs, part.old_logprobs, mask)[mask]
        positive = part.advantages[mask] > 0
        tally.tokens += int(mask.sum())
        tally.kl += float(kl[mask].sum())
        tally.entropy += float(entropy[mask].sum())
        tally.reference_entropy += float(ref_entropy[mask].sum())
        tally.clipped_low += int(((ratio < 1 - self.config.clip_low) & ~positive).sum())
        tally.clipped_high += int(((ratio > 1 + self.config.clip_high) & positive).sum())
        tally.ratio_lowest = min(tally.ratio_lowest, float(ratio.min()))
        tally.ratio_highest = max(tally.ratio_highest, float(ratio.max()))
        if fresh:
            gap = (logprobs - part.old_logprobs)[mask].abs()
            tally.mismatch += float(gap.sum())
            tally.mismatch_tokens += gap.numel()
            tally.mismatch_highest = max(tally.mismatch_highest, float(gap.max()))

    def _micro_batches(self, share: Batch) -> Iterator[Tensor]:
        """Rows of like length together, so that little is padded."""
        lengths = (share.rollout_of >= 0).sum(1)
        yield from torch.split(lengths.argsort(stable=True), self.config.micro_batch)
