"""The loops over tokens that are compiled: on the CPU, by numba, where it is installed (`apportion[fast]`).

They never change a result by more than rounding: whatever uses them has the same in plain torch, for other devices and
for gradients, and a test holds both against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from inspect import unwrap
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST = 2**17
"""Numbers below which a second of compiling is not worth it."""


def ready(*grids: Tensor) -> bool:
    """Whether a loop may run on these: of one plain type on the CPU, no gradient wanted, large, and numba there."""
    kinds = {(grid.device.type, grid.dtype) for grid in grids}
    plain = len(kinds) == 1 and kinds <= {("cpu", dtype) for dtype in (torch.float32, torch.float64, torch.bool)}
    tracked = torch.is_grad_enabled() and any(grid.requires_grad for grid in grids)
    return plain and not tracked and grids[0].numel() >= LEAST and _found()


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
    number = rewards.dtype.type
    first, last = (places.numpy() for places in spans)
    _kernel()(rewards, values, sampled, found.view(-1).numpy(), first, last, number(gamma), number(decay))
    return found


def running_numbers(
    like: Bool[Tensor, "B T"], starts: Int[Tensor, " C"], runs: tuple[Int[Tensor, " R"], Int[Tensor, " R"]]
) -> Int[Tensor, "B T"]:
    """Count, at every token of the runs, how many of `starts` stand at it or before it; 0 at all others. int32.

    starts: places in the flattened grid, in rising order. runs: where each starts, and its length.
    """
    found = torch.zeros(like.shape, dtype=torch.int32)
    before = torch.searchsorted(starts, runs[0])
    _numbering()(found.view(-1).numpy(), starts.numpy(), before.numpy(), runs[0].numpy(), runs[1].numpy())
    return found


@cache
def _found() -> bool:
    return find_spec("numba") is not None


@cache
def _kernel() -> Callable[..., None]:
    import numba

    def loop(
        rewards: Any, values: Any, sampled: Any, found: Any, first: Any, last: Any, gamma: Any, decay: Any
    ) -> None:
        for n in numba.prange(len(first)):
            later = value_after = gamma - gamma  # 0 of their type
            for t in range(last[n], first[n] - 1, -1):
                if sampled[t]:
                    later = rewards[t] + gamma * value_after - values[t] + decay * later
                    value_after = values[t]
                    found[t] = later

    compile_it = numba.njit(parallel=True, nogil=True, fastmath={"contract"})
    kernel: Callable[..., None] = compile_it(unwrap(loop))  # the tests wrap functions in a check of types
    return kernel


@cache
def _numbering() -> Callable[..., None]:
    import numba

    def loop(found: Any, starts: Any, before: Any, run: Any, length: Any) -> None:
        for r in numba.prange(len(run)):
            count = before[r]
            for t in range(run[r], run[r] + length[r]):
                while count < len(starts) and starts[count] <= t:
                    count += 1
                found[t] = count

    kernel: Callable[..., None] = numba.njit(parallel=True, nogil=True)(unwrap(loop))
    return kernel
