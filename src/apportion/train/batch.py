"""What the policy learns from: a ledger as the loss takes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.ledger import Ledger
from apportion.train.rows import Rows


@dataclass(frozen=True, eq=False)
class Batch(Rows):
    """What the policy learns from.

    old_logprobs: by the policy that sampled. asked: rollouts that the reference is asked about. fresh: those that the
    policy of this step sampled.
    """

    rollout_of: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logprobs: Float[Tensor, "B T"]
    groups: Int[Tensor, " B"]
    asked: Bool[Tensor, " B"]
    fresh: Bool[Tensor, " B"]

    @classmethod
    def of(cls, ledger: Ledger) -> Batch:
        """All rollouts of a ledger; what a token weighs is not settled yet."""
        rollouts = ledger.rollouts
        assert rollouts.logprobs is not None
        return cls(
            tokens=rollouts.tokens,
            valid=rollouts.valid_mask,
            mask=ledger.mask,
            weights=torch.zeros_like(ledger.advantage),
            rollout_of=rollouts.rollout_of,
            action_mask=rollouts.action_mask,
            advantages=ledger.advantage,
            old_logprobs=rollouts.logprobs,
            groups=rollouts.groups[rollouts.rollout_of[:, 0]],
            asked=torch.zeros(len(rollouts.tokens), dtype=torch.bool, device=rollouts.tokens.device),
            fresh=torch.ones(len(rollouts.tokens), dtype=torch.bool, device=rollouts.tokens.device),
        )

    @property
    def fresh_mask(self) -> Bool[Tensor, "B T"]:
        """The tokens in the loss that the policy of this step sampled."""
        return self.mask & self.fresh.unsqueeze(1)

    def as_sampled(self, logprobs: Float[Tensor, "B T"]) -> Batch:
        """The same with what the policy that sampled says now, as the passes of training give it."""
        return replace(self, old_logprobs=torch.where(self.fresh.unsqueeze(1), logprobs, self.old_logprobs))

    def ordered(self, rows: Int[Tensor, " R"]) -> Int[Tensor, " R"]:
        """These rows, those of one prompt side by side, and prompts whose answers are of like length."""
        lengths, groups = self.lengths, self.groups
        longest = torch.zeros_like(groups).scatter_reduce(0, groups, lengths, "amax")[groups]
        keys = torch.stack([longest, groups, lengths], dim=1).tolist()
        return torch.tensor(sorted(rows.tolist(), key=keys.__getitem__), dtype=torch.int64, device=rows.device)
