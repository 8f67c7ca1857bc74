"""A policy in this process as an engine that continues prefixes: by one running chance, or lot by lot.

All chance of a lot follows from the seed and from what is in the lot. So on one kind of machine a lot comes out the
same whoever draws it, in whatever order, and however often the run was interrupted before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import torch

from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.values.engine import Drawn, Prefix, Wanted

Lot = list[tuple[int, Wanted]]
"""Continuations that are drawn side by side, each with its place among all that were wanted."""


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
        return self.sampling.left(prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        asked = [(i, number) for i, want in enumerate(wanted) for number in range(want.first, want.first + want.count)]
        rows = self.sampling.max_rows
        for lot in (asked[first : first + rows] for first in range(0, len(asked), rows)):
            prefixes = [wanted[i].prefix for i, _ in lot]
            limits = [self.limit(prefix) for prefix in prefixes]
            samples = self.policy.sample([prefix.tokens for prefix in prefixes], self.sampling, self.generator, limits)
            for (i, number), found in zip(lot, samples, strict=True):
                yield Drawn(i, number, tuple(found.tokens), found.ended, cost=len(found.tokens))


def lots_of(wanted: Sequence[Wanted], rows: int) -> list[Lot]:
    """Cut what is wanted, in its order, into lots of `rows` continuations; the last may be smaller.

    >>> [[(i, part.first, part.count) for i, part in lot] for lot in lots_of([Wanted(Prefix("g", (7,), 0), 0, 5)], 3)]
    [[(0, 0, 3)], [(0, 3, 2)]]
    """
    lots: list[Lot] = []
    room = 0
    for i, want in enumerate(wanted):
        first, end = want.first, want.first + want.count
        while first < end:
            if room == 0:
                lots.append([])
                room = rows
            count = min(room, end - first)
            lots[-1].append((i, replace(want, first=first, count=count)))
            first, room = first + count, room - count
    return lots


def seed_of(lot: Lot, seed: int) -> int:
    """The seed of a lot's chance: of what is continued and under which numbers, whatever the groups are called."""
    content = [(part.prefix.tokens, part.prefix.sampled, part.first, part.count) for _, part in lot]
    return int.from_bytes(hashlib.sha256(repr((seed, content)).encode()).digest()[:7], "big")


@dataclass(frozen=True)
class Lots:
    """A policy in this process (`policy.continuing`), with a chance of its own for every lot.

    sampling.max_rows: continuations of a lot.
    """

    policy: CausalPolicy
    sampling: Sampling
    seed: int

    @cached_property
    def fingerprint(self) -> str:
        """Of the policy and its sampling settings, and the seed: another seed names other continuations."""
        return f"{self._engine(0).fingerprint}-{self.seed}"

    def limit(self, prefix: Prefix) -> int:
        return self.sampling.left(prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        return chain.from_iterable(self.lots(wanted))

    def lots(self, wanted: Sequence[Wanted]) -> Iterator[list[Drawn]]:
        return map(self.continued, lots_of(wanted, self.sampling.max_rows))

    def continued(self, lot: Lot) -> list[Drawn]:
        drawn = self._engine(seed_of(lot, self.seed)).draw([part for _, part in lot])
        return [replace(found, of=lot[found.of][0]) for found in drawn]

    def _engine(self, seed: int) -> InProcess:
        return InProcess(self.policy, self.sampling, torch.Generator(self.policy.model.device).manual_seed(seed))
