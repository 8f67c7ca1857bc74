"""Runs: the token grid at a glance. What lies between two changes of rollout, turn or sampler is one run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Runs:
    """Stretches of neighbouring tokens of one rollout and turn, all sampled or none; padding is left out.

    A batch of a million tokens has a few thousand runs, so whatever concerns rollouts and turns is worked out on them.

    start: of the run in the flattened token grid; length: in tokens.
    rollout, turn, sampled: what all of the run's tokens have in common.
    """

    start: Int[Tensor, " R"]
    length: Int[Tensor, " R"]
    rollout: Int[Tensor, " R"]
    turn: Int[Tensor, " R"]
    sampled: Bool[Tensor, " R"]

    @cached_property
    def of_actions(self) -> Runs:
        """The runs of sampled tokens."""
        return self.take(self.sampled)

    def take(self, which: Bool[Tensor, " R"]) -> Runs:
        places = which.nonzero().squeeze(1)
        columns = self.start, self.length, self.rollout, self.turn, self.sampled
        return Runs(*(column.index_select(0, places) for column in columns))

    @cached_property
    def opens_rollout(self) -> Bool[Tensor, " R"]:
        """True at the first of each rollout's runs; rolled back by one, at its last."""
        return _changes(self.rollout)

    @cached_property
    def opens_turn(self) -> Bool[Tensor, " R"]:
        """True at the first of each turn's runs; rolled back by one, at its last."""
        return _changes(self.rollout) | _changes(self.turn)

    @cached_property
    def closes_rollout(self) -> Int[Tensor, " C"]:
        """The number of each rollout's last run, of those that have any."""
        return self.opens_rollout.roll(-1).nonzero().squeeze(1)

    @cached_property
    def last(self) -> Int[Tensor, " R"]:
        """Where each run's last token stands."""
        return self.start + self.length - 1

    @cached_property
    def spans(self) -> tuple[Int[Tensor, " C"], Int[Tensor, " C"]]:
        """Where the first and the last of these tokens stand of each rollout that has any."""
        return self.start[self.opens_rollout], self.last[self.closes_rollout]


def runs_of(rollout_of: Int[Tensor, "B T"], turns: Int[Tensor, "B T"], action_mask: Bool[Tensor, "B T"]) -> Runs:
    """Find the runs of a token grid, in reading order."""
    columns = [grid.flatten() for grid in (rollout_of, turns, action_mask)]
    begins = torch.ones_like(columns[2])
    begins[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        begins[1:] |= column[1:] != column[:-1]
    start = begins.nonzero().squeeze(1)
    length = torch.diff(start, append=start.new_tensor([begins.numel()]))
    rollout, turn, sampled = (column[start] for column in columns)
    return Runs(start, length, rollout, turn, sampled).take(rollout >= 0)


def _changes(column: Int[Tensor, " R"]) -> Bool[Tensor, " R"]:
    """True where an entry differs from the one before it, and at the first."""
    changed = torch.ones_like(column, dtype=torch.bool)
    changed[1:] = column[1:] != column[:-1]
    return changed
