"""One batch of rollouts with their advantages in, better weights out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion import losses
from apportion.ledger import Ledger
from apportion.policy.causal import CausalPolicy
from apportion.train.config import TrainConfig
from apportion.train.tally import Figures, Forward, Tally


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


class Updater:
    """Policy, reference and optimiser, and how a ledger moves the first of them."""

    def __init__(self, policy: CausalPolicy, config: TrainConfig) -> None:
        self.policy = policy
        self.reference = policy.frozen_copy()
        self.config = config
        self.optimiser = torch.optim.AdamW(
            policy.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )

    def load(self, state: dict[str, Any]) -> None:
        """Take up the optimiser's state, with the settings of this run."""
        self.optimiser.load_state_dict(state)
        for group in self.optimiser.param_groups:
            group |= {"lr": self.config.learning_rate, "weight_decay": self.config.weight_decay}

    def update(self, ledger: Ledger, order: torch.Generator) -> Figures:
        """Train on the whole batch once, in `updates` shares. `order` draws which rollouts are in which share."""
        batch, tally = Batch.of(ledger), Tally(self.config.clip_low, self.config.clip_high)
        rows = torch.randperm(len(batch.tokens), generator=order).to(batch.tokens.device)
        shares = [batch.take(share) for share in rows.chunk(self.config.updates)]
        steps = [self._step(share, tally, fresh=share is shares[0]) for share in shares]
        taken = [(loss, norm) for loss, norm in steps if math.isfinite(loss) and math.isfinite(norm)]
        return {
            "loss": sum(loss for loss, _ in taken) / len(taken) if taken else None,
            "grad_norm": sum(norm for _, norm in taken) / len(taken) if taken else None,
            "skipped_updates": len(steps) - len(taken),
            **tally.figures(),
        }

    def _step(self, share: Batch, tally: Tally, *, fresh: bool) -> tuple[float, float]:
        """One step of the optimiser, unless loss or gradient is not finite; gives both.

        fresh: the policy is still the one that sampled.
        """
        weights = self._reduction()(share.mask, share.rollout_of)
        self.optimiser.zero_grad(set_to_none=True)
        loss_sum = 0.0
        for rows in self._micro_batches(share):
            part = share.take(rows)
            forward = self._forward(part)
            loss = losses.total(self._token_loss(part, forward), weights[rows, : part.tokens.shape[1]])
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += float(loss.detach())
            tally.add(forward, part.old_logprobs, part.advantages, part.mask)
            if fresh:
                tally.add_mismatch(forward, part.old_logprobs, part.mask)
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), self.config.max_grad_norm))
        if math.isfinite(loss_sum) and math.isfinite(norm):
            self.optimiser.step()
        return loss_sum, norm

    def _reduction(self) -> losses.Reduction:
        """By name; a fixed divisor is the number of tokens that a share could have at most."""
        config = self.config
        most = config.prompts * config.group * config.max_new_tokens / config.updates
        return (losses.REDUCTIONS | {"fixed_divisor": losses.fixed_divisor(most)})[config.reduction]

    def _forward(self, part: Batch) -> Forward:
        arguments = (part.tokens, part.rollout_of >= 0, part.action_mask)
        logprobs, entropy = self.policy.logprobs(*arguments, temperature=self.config.temperature)
        with torch.no_grad():
            ref_logprobs, ref_entropy = self.reference.logprobs(*arguments, temperature=self.config.temperature)
        return Forward(logprobs, entropy, ref_logprobs, ref_entropy)

    def _token_loss(self, part: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        config = self.config
        loss = losses.ppo_clip(
            forward.logprobs,
            part.old_logprobs,
            part.advantages,
            part.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        if config.kl_beta:
            kl = losses.KL_BY_NAME[config.kl_estimator](forward.logprobs, forward.ref_logprobs, part.mask)
            loss = loss + config.kl_beta * kl
        if config.entropy_bonus:
            loss = loss + config.entropy_bonus * losses.entropy_bonus(forward.entropy, part.mask)
        return loss

    def _micro_batches(self, share: Batch) -> Iterator[Tensor]:
        """Rows of like length together, so that little is padded."""
        lengths = (share.rollout_of >= 0).sum(1)
        yield from torch.split(lengths.argsort(stable=True), self.config.micro_batch)
