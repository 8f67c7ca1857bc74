"""Splitters that look at ids and turns alone, and what all splitters build on.

Sampled tokens are counted in reading order, over padding, prompts, tool tokens and rollouts; so a run of tool tokens
inside a turn is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts, Runs
from apportion.steps.grid import StepMap, number_steps, number_steps_at, number_steps_ending

Splitter = Callable[[Rollouts], StepMap]


def whole(rollouts: Rollouts) -> StepMap:
    """The whole answer is one long step, over all turns."""
    return number_steps_at(rollouts, rollouts.groups.new_zeros(0))


def every_token(rollouts: Rollouts) -> StepMap:
    """Every sampled token is a step of length one."""
    return number_steps(rollouts, rollouts.action_mask)


def turns(rollouts: Rollouts) -> StepMap:
    """A step is all that the policy says in one turn: one tool call, or one message to the user."""
    return number_steps_at(rollouts, turn_starts(rollouts))


def chunks(size: int = 200) -> Splitter:
    """Cut each turn into chunks of `size` sampled tokens; its last chunk may be shorter.

    A new turn starts a new chunk, so that no chunk holds two decisions with the world's answer between them. Tool
    tokens inside a turn are not counted. Identity: chunks(1) is `every_token`.
    Raises InputError for a size below 1.
    """
    if size < 1:
        raise InputError(f"a chunk needs at least 1 token, {size} were asked for")

    def split(rollouts: Rollouts) -> StepMap:
        runs = rollouts.runs.of_actions
        turn = runs.opens_turn.cumsum(0) - 1
        lengths = torch.zeros_like(runs.length).index_add(0, turn, runs.length)
        owner, chunk = numbered((lengths + size - 1) // size)
        begins = lengths.cumsum(0) - lengths
        return number_steps_at(rollouts, place_of(runs, begins[owner] + chunk * size))

    return split


def marker(token: int) -> Splitter:
    """Cut after every sampled token with this id (an explicit end-of-step token), and between turns."""

    def split(rollouts: Rollouts) -> StepMap:
        return number_steps_ending(rollouts, rollouts.tokens, token)

    return split


def turn_starts(rollouts: Rollouts) -> Int[Tensor, " C"]:
    """Where each turn's first sampled token stands in the flattened token grid."""
    runs = rollouts.runs.of_actions
    return runs.start[runs.opens_turn]


def place_of(runs: Runs, index: Int[Tensor, " C"]) -> Int[Tensor, " C"]:
    """Where the sampled token of each number, from 0 through the batch, stands in the flattened token grid."""
    after = runs.length.cumsum(0)
    run = torch.searchsorted(after, index, right=True)
    return runs.start[run] + index - (after - runs.length)[run]


def numbered(counts: Int[Tensor, " P"]) -> tuple[Int[Tensor, " C"], Int[Tensor, " C"]]:
    """Lay out counts[p] pieces for each p: the p of every piece, and its number among them, from 0."""
    owner = torch.repeat_interleave(counts)
    return owner, torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
