"""Sums over the processes that share a batch.

A statistic of a batch is worked out from sums (and largest entries) over its shards. `ALONE` is the only process there
is. `ranks()` adds up over a `torch.distributed` process group, and there every process must make the same calls: one
whose shard is empty takes part with zeros, so nothing hangs and nobody's numbers change.

Law: a function that takes `across` gives every shard the numbers that the whole batch gives a single process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Across:
    """How entries of one shape, one tensor a process, become one that all of them hold.

    sum, largest: element by element. size: the number of processes.
    """

    sum: Reduce
    largest: Reduce
    size: int = 1


def _as_it_is(entries: Tensor) -> Tensor:
    return entries


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

    ops = distributed.ReduceOp
    return Across(reduced(ops.SUM), reduced(ops.MAX), distributed.get_world_size(group))


def group_count(groups: Tensor, across: Across) -> int:
    """How many groups there are on all processes, by their dense indices; the same number means the same group."""
    most = torch.cat([groups, groups.new_full((1,), -1)]).max() + 1
    return int(across.largest(most))
