"""Sums over the processes that share a batch.

A statistic of a batch is worked out from sums (and largest entries) over its shards. `ALONE` is the only process there
is. `ranks()` adds up over a `torch.distributed` process group, and there every process must make the same calls: one
whose shard is empty takes part with zeros, so nothing hangs and nobody's numbers change.

Law: a function that takes `across` gives every shard the numbers that the whole batch gives a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]
Item = TypeVar("Item")
Result = TypeVar("Result")


def _as_it_is(entries: Any) -> Any:
    return entries


@dataclass(frozen=True)
class Across:
    """How entries of one shape, one tensor a process, become one that all of them hold.

    sum, largest: element by element. gather: the lists of all processes in one, in their order.
    size: the number of processes. rank: which of them this one is.
    """

    sum: Reduce
    largest: Reduce
    gather: Callable[[list[Any]], list[Any]] = _as_it_is
    size: int = 1
    rank: int = 0

    def first(self, entries: Tensor) -> Tensor:
        """What the first process has of them: for what decides who does what, and may differ by rounding."""
        [found] = self.gather([entries.cpu()] if self.rank == 0 else [])
        own: Tensor = found.to(entries.device)
        return own

    def spread(self, items: Sequence[Item], work: Callable[[Sequence[Item]], list[Result]]) -> list[Result]:
        """Do work that gives a result an item, each process a run of the items; all get all results, in order."""
        first, end = (len(items) * number // self.size for number in (self.rank, self.rank + 1))
        return self.gather(work(items[first:end]) if end > first else [])


ALONE = Across(sum=_as_it_is, largest=_as_it_is)


def ranks(group: Any = None) -> Across:
    """All processes of a `torch.distributed` group (None: of the default one).

    The tensors must lie where the group's backend can reach them (CPU for gloo, the GPU for NCCL). No gradient flows
    through: statistics are numbers.
    """
    from torch import distributed

    def reduced(how: distributed.ReduceOp.RedOpType) -> Reduce:
        def reduce(entries: Tensor) -> Tensor:
            total = entries.detach().clone()
            distributed.all_reduce(total, how, group=group)
            return total

        return reduce

    size = distributed.get_world_size(group)

    def gather(own: list[Any]) -> list[Any]:
        found: list[Any] = [None] * size
        distributed.all_gather_object(found, own, group=group)
        return [entry for entries in found for entry in entries]

    ops = distributed.ReduceOp
    return Across(reduced(ops.SUM), reduced(ops.MAX), gather, size, distributed.get_rank(group))


def group_count(groups: Tensor, across: Across) -> int:
    """How many groups there are on all processes, by their dense indices; the same number means the same group."""
    most = torch.cat([groups, groups.new_full((1,), -1)]).max() + 1
    return int(across.largest(most))
