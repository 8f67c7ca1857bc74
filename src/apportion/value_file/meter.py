"""What continuations cost, and how far the work has come, seen from outside of the estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from apportion.values.engine import Drawn, Engine, Prefix, Wanted


@dataclass
class Meter:
    """An engine that counts what another one draws, in tokens and in continuations.

    Every continuation is charged for, one from the store as well. So a budget buys the same continuations however
    often a run was interrupted.

    most: continuations that a prefix gets at most. generated, taken: tokens drawn now and from the store.
    cut_off: continuations that did not end by themselves. drawn: those that the prefixes of the present round have had,
    of this round and earlier ones. full: how many of these prefixes have had the most.
    """

    engine: Engine
    most: int
    generated: int = 0
    taken: int = 0
    samples: int = 0
    cut_off: int = 0
    drawn: int = 0
    full: int = 0
    _had: list[int] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return self.engine.fingerprint

    def limit(self, prefix: Prefix) -> int:
        return self.engine.limit(prefix)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        self._had = [want.first for want in wanted]
        self.drawn, self.full = sum(self._had), 0
        for found in self.engine.draw(wanted):
            self._count(found)
            yield replace(found, cost=len(found.tokens))

    def _count(self, found: Drawn) -> None:
        if found.cost:
            self.generated += len(found.tokens)
        else:
            self.taken += len(found.tokens)
        self.samples += 1
        self.cut_off += not found.ended
        self._had[found.of] += 1
        self.drawn += 1
        self.full += self._had[found.of] == self.most
