"""The processes that train one policy together: one, or as many as `torchrun` has started.

Every process holds the whole batch and works out all of its credit; only what costs time is shared out: sampling,
judging, and the passes forward and back. So all statistics are those of the whole batch, and a run comes out the same,
up to rounding, on however many processes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from apportion.across import ALONE, Across, ranks
from apportion.errors import ApportionError, InputError

Told = TypeVar("Told")


def several() -> bool:
    """Whether this is one of several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def joined() -> Across:
    """The processes that train together, once they have found each other."""
    if not several():
        if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1"):
            warnings.warn(
                "one process trains: on a CPU `accelerate launch` starts one, however many it is asked for; "
                "`torchrun --nproc-per-node N -m apportion train` starts N",
                stacklevel=2,
            )
        return ALONE
    from accelerate import PartialState

    gpu = torch.cuda.is_available()
    # sums are over tensors on the CPU; one process may keep the others waiting while it judges or saves
    backend = {"backend": "cuda:nccl,cpu:gloo"} if gpu else {}
    PartialState(cpu=not gpu, timeout=timedelta(hours=2), **backend)
    return ranks()


def told(make: Callable[[], Told], across: Across) -> Told:
    """What the first process makes, in all of them; what it refuses it says, and the others end without a word."""
    found: list[Any] = []
    if across.rank == 0:
        try:
            found = [make(), None]
        except ApportionError as error:
            found = [None, error]
    made, refused = across.gather(found)
    if refused is not None:
        raise refused if across.rank == 0 else SystemExit(2)
    told: Told = made
    return told


class Wrapping:
    """Makes a module one that all processes train together: as data-parallel copies, or in shards (FSDP2).

    Copies by Accelerate. Shards by torch's own `fully_shard`, layer by layer: Accelerate leaves modules whole on a CPU,
    and says nothing.
    """

    def __init__(self, across: Across, *, sharded: bool = False) -> None:
        from accelerate import Accelerator

        if sharded and across.size == 1:
            raise InputError("sharded is true and there is one process; `torchrun --nproc-per-node N` starts several")
        self.across, self.sharded = across, sharded
        self._accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="no")

    def __call__(self, module: nn.Module) -> Any:
        """The module as it is trained from now on; its optimiser is to be made for what this gives."""
        if not self.sharded:
            return self._accelerator.prepare_model(module)
        for layers in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
            for layer in layers:
                fully_shard(layer)
        return fully_shard(module)

    @contextmanager
    def apart(self, module: Any) -> Iterator[None]:
        """Within, gradients stay with each process: they are put together after a later pass."""
        if self.sharded:
            module.set_requires_gradient_sync(False)
            yield
            module.set_requires_gradient_sync(True)
        else:
            with self._accelerator.no_sync(module):
                yield


def whole(weights: Tensor) -> Tensor:
    """A tensor that may be in shards, as every process can use it; all must call this."""
    return weights.full_tensor() if isinstance(weights, DTensor) else weights


def in_shards_like(weights: Tensor, like: Tensor) -> Tensor:
    """A whole tensor cut as another one is."""
    return distribute_tensor(weights, like.device_mesh, like.placements) if isinstance(like, DTensor) else weights
