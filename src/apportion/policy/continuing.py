"""A policy in this process as an engine that continues prefixes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.values.engine import Drawn, Prefix, Wanted


@dataclass(frozen=True)
class InProcess:
    """Continues prefixes side by side, and reads every token of them once (`policy.sampling`).

    sampling.max_new_tokens: of an answer as a whole, so a continuation may have what its prefix left of them.
    """

    policy: CausalPolicy
    sampling: Sampling
    generator: torch.Generator

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights as they are now, the ids that end an answer, and the sampling settings."""
        sampling = self.sampling
        digest = hashlib.sha256(repr((sampling.max_new_tokens, sampling.temperature, sampling.top_p)).encode())
        digest.update(repr(sorted(self.policy.ends)).encode())
        for name, weights in sorted(self.policy.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def limit(self, prefix: Prefix) -> int:
        return max(1, self.sampling.max_new_tokens - prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        asked = [(i, number) for i, want in enumerate(wanted) for number in range(want.first, want.first + want.count)]
        rows = self.sampling.max_rows
        for lot in (asked[first : first + rows] for first in range(0, len(asked), rows)):
            prefixes = [wanted[i].prefix for i, _ in lot]
            limits = [self.limit(prefix) for prefix in prefixes]
            samples = self.policy.sample([prefix.tokens for prefix in prefixes], self.sampling, self.generator, limits)
            for (i, number), found in zip(lot, samples, strict=True):
                yield Drawn(i, number, tuple(found.tokens), found.ended, cost=len(found.tokens))
