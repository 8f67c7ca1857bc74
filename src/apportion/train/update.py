"""One batch of rollouts with their advantages in, better weights out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from apportion import losses
from apportion.ledger import Ledger
from apportion.policy import layouts
from apportion.policy.causal import CausalPolicy
from apportion.train.batch import Batch
from apportion.train.config import TrainConfig
from apportion.train.learner import Learner
from apportion.train.processes import Wrapping
from apportion.train.replay import Replay
from apportion.train.tally import Figures, Forward, Tally

REFERENCE_ROWS = 32
"""Rollouts that the reference is asked about, of a share whose loss does not need it."""


@dataclass(frozen=True)
class Terms:
    """The weights of the terms of the loss: they may change from step to step."""

    policy: float = 1.0
    kl_beta: float = 0.0


class Updater:
    """Policy, reference and optimiser, and how a ledger moves the first of them."""

    def __init__(self, policy: CausalPolicy, config: TrainConfig, wrap: Wrapping) -> None:
        self.policy = policy
        self.reference = policy.reference() if config.kl_beta or config.keep_reference else None
        self.config = config
        self.across = wrap.across
        self.layout = layouts.BY_NAME[config.layout]
        self.replay = Replay(config.replay_share, config.replay_steps)
        self._apart = wrap.sharded  # shards cannot sample, so the policy that does is a copy
        self.learner = Learner(
            policy.trained(apart=self._apart),
            wrap,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        )

    def update(self, ledger: Ledger, order: torch.Generator, terms: Terms) -> Figures:
        """Train on the whole batch once, in `updates` shares.

        order: draws which rollouts are in which share, and which older ones join them.
        """
        own = Batch.of(ledger)
        batch = self.replay.joined(own, order)
        self.replay.keep(own)
        tally = Tally(self.config.clip_low, self.config.clip_high, self.across)
        rows = torch.randperm(len(batch.tokens), generator=order).to(batch.tokens.device)
        first, *later = [self._parts(batch, share, terms) for share in rows.tensor_split(self.config.updates)]
        later = [[self._as_sampled(part, tally) for part in parts] for parts in later]
        steps = [self._step(first, terms, tally, fresh=True)]
        steps += [self._step(parts, terms, tally, fresh=False) for parts in later]
        if self._apart:
            self._copy_to_policy()
        taken = [(loss, norm) for loss, norm in steps if math.isfinite(loss) and math.isfinite(norm)]
        return {
            "loss": sum(loss for loss, _ in taken) / len(taken) if taken else None,
            "grad_norm": sum(norm for _, norm in taken) / len(taken) if taken else None,
            "skipped_updates": len(steps) - len(taken),
            "trained_tokens": int(batch.mask.sum()),
            **tally.figures(),
        }

    def idle(self) -> Figures:
        """The figures of a step in which the policy is not moved."""
        figures = Tally(self.config.clip_low, self.config.clip_high).figures()
        return {"loss": None, "grad_norm": None, "skipped_updates": 0, "trained_tokens": 0, **figures}

    def _copy_to_policy(self) -> None:
        with torch.no_grad():
            for own, trained in zip(self.policy.scorer.parameters(), self.learner.weights(), strict=True):
                own.copy_(trained)

    def state(self) -> dict[str, Any]:
        """All that updates go on from besides the policy; every process must ask for it."""
        return {"optimiser": self.learner.state(), "replay": self.replay.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there, and from the weights that the policy has now."""
        if self._apart:
            self.learner.take(self.policy.scorer.parameters())
        self.learner.load(state["optimiser"])
        self.replay.load(state["replay"], self.policy.model.device)

    def _parts(self, batch: Batch, share: Tensor, terms: Terms) -> list[Batch]:
        """This process's parts of a share, with the weights that its tokens have in the whole of it.

        What moves nothing is left out: rollouts of a group that are all alike, unless the loss holds more than credit.
        """
        weights = self._reduction()(batch.mask[share], batch.rollout_of[share])
        if not terms.kl_beta and not self.config.entropy_bonus:
            moved = self.across.first((batch.advantages[share] != 0).any(1))
            share, weights = share[moved], weights[moved]
        asked = share if terms.kl_beta else share[: REFERENCE_ROWS if self.reference else 0]
        batch = replace(
            batch,
            weights=batch.weights.index_copy(0, share, weights),
            asked=batch.asked.index_fill(0, asked, True),
        )
        size, ranks = self.config.micro_batch, self.across.size
        return batch.parts(batch.ordered(share), size, ranks)[self.across.rank :: ranks]

    def _as_sampled(self, part: Batch, tally: Tally) -> Batch:
        """The same with the log-probabilities of the policy that sampled, as the passes of training give them."""
        with torch.no_grad():
            forward = self._forward(replace(part, asked=torch.zeros_like(part.asked)))
        tally.add_mismatch(forward, part.old_logprobs, part.fresh_mask)
        return part.as_sampled(forward.logprobs)

    def _step(self, parts: list[Batch], terms: Terms, tally: Tally, *, fresh: bool) -> tuple[float, float]:
        """One step of the optimiser, unless loss or gradient is not finite; gives both.

        fresh: the policy is still the one that sampled.
        """

        def loss_of(part: Batch) -> Tensor:
            forward = self._forward(part)
            if fresh:
                tally.add_mismatch(forward, part.old_logprobs, part.fresh_mask)
                part = part.as_sampled(forward.logprobs.detach())
            tally.add(forward, part.old_logprobs, part.advantages, part.mask & (part.weights != 0))
            return losses.total(self._token_loss(part, forward, terms), part.weights)

        return self.learner.step(parts, loss_of)

    def _reduction(self) -> losses.Reduction:
        """By name; a fixed divisor is the number of tokens that a share could have at most."""
        config = self.config
        most = config.prompts * config.group * config.max_new_tokens / config.updates
        return (losses.REDUCTIONS | {"fixed_divisor": losses.fixed_divisor(most)})[config.reduction]

    def _forward(self, part: Batch) -> Forward:
        """Log-probabilities and entropies by the policy, and by the reference where it is asked."""
        arguments = (part.tokens, part.valid, part.action_mask)
        asked: dict[str, Any] = {"temperature": self.config.temperature, "layout": self.layout}
        logprobs, entropy = self.learner.module(*arguments, **asked)
        if self.reference is None or not bool(part.asked.any()):
            return Forward(logprobs, entropy)
        with torch.no_grad(), self.reference() as reference:
            by_reference = reference.logprobs(*(column[part.asked] for column in arguments), **asked)
        return Forward(logprobs, entropy, part.asked, *by_reference)

    def _token_loss(self, part: Batch, forward: Forward, terms: Terms) -> Float[Tensor, "B T"]:
        config = self.config
        loss = terms.policy * losses.ppo_clip(
            forward.logprobs,
            part.old_logprobs,
            part.advantages,
            part.mask,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        if terms.kl_beta and bool(part.asked.all()):
            assert forward.ref_logprobs is not None, "where the loss holds a KL, the reference is asked about all"
            kl = losses.KL_BY_NAME[config.kl_estimator](forward.logprobs, forward.ref_logprobs, part.mask)
            loss = loss + terms.kl_beta * kl
        if config.entropy_bonus:
            loss = loss + config.entropy_bonus * losses.entropy_bonus(forward.entropy, part.mask)
        return loss
