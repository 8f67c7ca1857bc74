"""The loops over tokens that are compiled: on the CPU, by numba, where it is installed (`apportion[fast]`).

They never change a result by more than rounding: whatever uses them has the same in plain torch, for other devices and
for gradients, and a test holds both against each other. This is their door; they themselves are in `compiled.loops`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

LEAST = 2**17
"""Numbers below which a second of compiling is not worth it."""

PLAIN = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)


def ready(*grids: Tensor) -> bool:
    """Whether a loop may run on these: plain types on the CPU, floats of one kind, no gradient wanted, one of them
    large, and numba there."""
    plain = all(grid.device.type == "cpu" and grid.dtype in PLAIN for grid in grids)
    mixed = len({grid.dtype for grid in grids if grid.is_floating_point()}) > 1
    tracked = torch.is_grad_enabled() and any(grid.requires_grad for grid in grids)
    return plain and not mixed and not tracked and max(grid.numel() for grid in grids) >= LEAST and _found()


def credit_to_go(
    grids: tuple[Float[Tensor, "B T"], Float[Tensor, "B T"], Bool[Tensor, "B T"]],
    spans: tuple[Int[Tensor, " N"], Int[Tensor, " N"]],
    *,
    gamma: float,
    decay: float,
) -> Float[Tensor, "B T"]:
    """Compute credit[t] = rewards[t] + gamma * values[t'] - values[t] + decay * credit[t'], rollouts side by side.

    grids: rewards, values, and which tokens are sampled; t' is the next sampled token, and others get 0.
    spans: where in the flattened grids each rollout's first and last sampled token stand.
    """
    rewards, values, sampled = (grid.detach().reshape(-1).numpy() for grid in grids)
    found = torch.zeros_like(grids[0], memory_format=torch.contiguous_format)
    first, last = (places.numpy() for places in spans)
    number = rewards.dtype.type
    _loops().credit_to_go(rewards, values, sampled, found.view(-1).numpy(), first, last, number(gamma), number(decay))
    return found


def running_count(
    grid: Shaped[Tensor, " M"],
    mark: int,
    runs: tuple[Int[Tensor, " R"], Int[Tensor, " R"], Bool[Tensor, " R"]],
    *,
    closing: bool,
) -> Int[Tensor, " M"]:
    """Count the tokens that hold `mark`, up to each token of the runs; 0 at all other tokens. int32.

    closing: a mark is counted from the token after it on, and all count from 1.
    runs: where each starts, its length, and whether its first token, or with `closing` its last, counts as a mark
    whatever it holds.
    """
    found = torch.empty(grid.shape, dtype=torch.int32)
    start, length, forced = (column.numpy() for column in runs)
    _loops().running_count(grid.numpy(), mark, found.numpy(), start, length, forced, closing)
    return found


def looked_up(table: Float[Tensor, " S"], number: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Take table[number] for every token; numbers are trusted."""
    found = torch.empty(number.shape, dtype=table.dtype)
    _loops().looked_up(table.detach().numpy(), number.reshape(-1).numpy(), found.view(-1).numpy())
    return found


@cache
def _found() -> bool:
    return find_spec("numba") is not None


def _loops() -> Any:
    return import_module("apportion.compiled.loops")
