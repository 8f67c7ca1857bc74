"""The processes that train one policy together: one, or as many as `torchrun` has started.

Every process holds the whole batch and works out all of its credit; only what costs time is shared out: sampling,
judging, and the passes forward and back. So all statistics are those of the whole batch, and a run comes out the same,
up to rounding, on however many processes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

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

    PartialState(cpu=not torch.cuda.is_available())
    return ranks()


def told(make: Callable[[], Told], across: Across) -> Told:
    """What the first process makes, in all of them; what it refuses, all refuse."""
    found: list[Any] = []
    if across.rank == 0:
        try:
            found = [make(), None]
        except ApportionError as error:
            found = [None, error]
    made, refused = across.gather(found)
    if refused is not None:
        raise refused
    told: Told = made
    return told


class Wrapping:
    """Makes a module one that all processes train together, as data-parallel copies or in shards (FSDP2)."""

    def __init__(self, across: Across, *, sharded: bool) -> None:
        from accelerate import Accelerator, FullyShardedDataParallelPlugin

        if sharded and across.size == 1:
            raise InputError("sharded is true and there is one process; `torchrun --nproc-per-node N` starts several")
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
        self.across, self.sharded = across, sharded
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available(), fsdp_plugin=plugin if sharded else None)

    def __call__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[Any, Any]:
        """The module and its optimiser as they are trained from now on."""
        wrapped, prepared = self.accelerator.prepare(module, optimiser)
        return wrapped, prepared.optimizer


def whole(weights: Tensor) -> Tensor:
    """A tensor that may be in shards, as every process can use it; all must call this."""
    return weights.full_tensor() if hasattr(weights, "full_tensor") else weights
