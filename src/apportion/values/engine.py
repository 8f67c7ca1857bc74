"""What continues a prefix: the one seam between values and whatever samples for them.

An engine is a policy with its sampling settings: a model in this process, a server, actors on many machines, or a store
of what any of them drew before (`values.store`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class Prefix(NamedTuple):
    """Prompt and answer of a group up to some token; `sampled` of the tokens are the policy's."""

    group: Hashable
    tokens: tuple[int, ...]
    sampled: int


@dataclass(frozen=True)
class Wanted:
    """Continuations of one prefix: those numbered `first` to `first + count - 1`.

    The number names a continuation for good: an engine never gives two to one number of a prefix, and a store knows by
    it which it holds.
    """

    prefix: Prefix
    first: int
    count: int


@dataclass(frozen=True)
class Drawn:
    """One continuation: number `number` of the prefix of `wanted[of]`. ended: by itself, as against cut off.

    cost: tokens generated for it in this run; 0 where a store had it.
    """

    of: int
    number: int
    tokens: tuple[int, ...]
    ended: bool
    cost: int


@runtime_checkable
class Engine(Protocol):
    """Draws continuations.

    fingerprint: of all that a continuation's distribution hangs on: the policy's weights and the sampling settings.
    Continuations under one fingerprint may stand for each other.
    """

    @property
    def fingerprint(self) -> str: ...

    def limit(self, prefix: Prefix) -> int:
        """Most tokens that a continuation of the prefix can have."""
        ...

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        """Yield every continuation asked for, in any order, each as soon as it is there.

        Raises InputError where it cannot go on; what was yielded before stays good.
        """
        ...
