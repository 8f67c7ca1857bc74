"""The compiled loops, on flat numpy arrays.

Places are made unsigned before they index: numba then need not ask of each whether it counts from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import numba
import numpy as np

PIECE = 2**14
"""Tokens of a rollout that are run through at a stretch; the pieces of a longer one are run through side by side."""

place = np.uint64


def _compiled(**how: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function. The tests wrap every function in a check of types, which cannot be compiled."""
    return lambda function: numba.njit(nogil=True, fastmath={"contract"}, **how)(unwrap(function))


@_compiled(parallel=True)
def credit_to_go(
    rewards: Any, values: Any, sampled: Any, found: Any, first: Any, last: Any, gamma: Any, decay: Any
) -> None:
    """Fill in `found`, rollout by rollout, each from its end.

    Two pieces are run through in turns, since one alone would wait for its own last result. What comes behind a piece
    is left out, and added once that is known: it fades with every token.
    """
    zero = gamma - gamma  # of their type
    least = np.finfo(rewards.dtype).tiny
    low, high, behind = _pieces(first, last, sampled)
    for pair in numba.prange((len(low) + 1) // 2):
        a, b = 2 * pair, min(2 * pair + 1, len(low) - 1)
        later_a, later_b = zero, zero
        value_a = values[behind[a]] if behind[a] else zero
        value_b = values[behind[b]] if behind[b] else zero
        both = min(high[a] - low[a], high[b] - low[b]) + 1
        for back in range(both):
            value_a, later_a = _step(high[a] - back, rewards, values, sampled, found, value_a, later_a, gamma, decay)
            value_b, later_b = _step(high[b] - back, rewards, values, sampled, found, value_b, later_b, gamma, decay)
        for t in range(high[a] - both, low[a] - 1, -1):
            value_a, later_a = _step(t, rewards, values, sampled, found, value_a, later_a, gamma, decay)
        for t in range(high[b] - both, low[b] - 1, -1):
            value_b, later_b = _step(t, rewards, values, sampled, found, value_b, later_b, gamma, decay)
    for n in numba.prange(len(first)):
        for joint in range(last[n] - (last[n] - first[n]) % PIECE, first[n], -PIECE):
            later = found[_sampled_from(joint, sampled)]
            for t in range(joint - 1, joint - PIECE - 1, -1):
                if abs(later) < least:
                    break
                if sampled[place(t)]:
                    later *= decay
                    found[place(t)] += later


@_compiled(parallel=True)
def running_count(grid: Any, mark: Any, found: Any, start: Any, length: Any, forced: Any, closing: Any) -> None:
    """Fill in `found`, run by run, once it is known what all runs before hold."""
    runs, stop = len(start), start + length
    before = np.zeros(runs + 1, np.int64)
    unmarked = np.zeros(runs, np.bool_)
    for r in numba.prange(runs):
        unmarked[r] = forced[r] and grid[stop[r] - 1 if closing else start[r]] != mark
        count = int(unmarked[r])
        for t in range(start[r], stop[r]):
            count += grid[place(t)] == mark
        before[r + 1] = count
    before = before.cumsum()
    for r in numba.prange(runs):
        found[stop[r - 1] if r else 0 : start[r]] = 0
        reached = np.int32(before[r] + (1 if closing else unmarked[r]))
        for t in range(start[r], stop[r]):
            here = np.int32(grid[place(t)] == mark)
            found[place(t)] = reached if closing else reached + here
            reached += here
    found[stop[-1] if runs else 0 :] = 0


@_compiled(parallel=True)
def looked_up(table: Any, number: Any, found: Any) -> None:
    for t in numba.prange(len(number)):
        found[t] = table[place(number[t])]


@_compiled(inline="always")
def _step(
    t: Any, rewards: Any, values: Any, sampled: Any, found: Any, value: Any, later: Any, gamma: Any, decay: Any
) -> Any:
    """(value, credit) at token t, from those at the next sampled token; where t is not sampled they stay."""
    if not sampled[place(t)]:
        return value, later
    here = values[place(t)]
    found[place(t)] = rewards[place(t)] - here + gamma * value + decay * later
    return here, found[place(t)]


@_compiled()
def _pieces(first: Any, last: Any, sampled: Any) -> Any:
    """Where pieces begin and end, and the first sampled token behind each in its rollout (0: there is none)."""
    number = ((last - first) // PIECE + 1).sum()
    low, high, behind = np.empty(number, np.int64), np.empty(number, np.int64), np.zeros(number, np.int64)
    piece = 0
    for n in range(len(first)):
        for begin in range(first[n], last[n] + 1, PIECE):
            low[piece], high[piece] = begin, min(begin + PIECE - 1, last[n])
            if high[piece] < last[n]:
                behind[piece] = _sampled_from(high[piece] + 1, sampled)
            piece += 1
    return low, high, behind


@_compiled()
def _sampled_from(t: Any, sampled: Any) -> Any:
    """The first sampled token from t on."""
    while not sampled[place(t)]:
        t += 1
    return t
