"""The map between the token grid [B, T] and the dense step grid [N, K].

The step grid has one row a rollout, left-aligned and without holes: padding, packing and tokens that the policy did
not sample are gone. Column k is step k; K is the largest count of steps in the batch (at least 1). Entries past a
rollout's last step are 0. Whatever stands in padding or on tool tokens (NaN, inf) never shows.

The map is one grid of running numbers: the steps of the batch, S in all, are counted in reading order. So a step's
number is worked out by one cumulative sum, and going from steps to tokens is one look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from apportion import compiled
from apportion.errors import InputError
from apportion.rollouts import Rollouts, Scores

Merge = Callable[[Float[Tensor, " E"], Int[Tensor, " E"], int], Float[Tensor, " S"]]


@dataclass(frozen=True, eq=False)
class StepMap:
    """Which step each sampled token belongs to.

    number: the running number, from 1, of the token's step among all steps of the batch; 0 = the token was not sampled.
    counts: steps of each rollout.
    """

    number: Int[Tensor, "B T"]
    counts: Int[Tensor, " N"]

    @cached_property
    def width(self) -> int:
        """K."""
        return max(1, int(self.counts.max()))

    @cached_property
    def total(self) -> int:
        """S, the number of steps in the batch."""
        return int(self.counts.sum())

    @cached_property
    def mask(self) -> Bool[Tensor, "N K"]:
        """True where a step is."""
        columns = torch.arange(self.width, device=self.counts.device)
        return columns < self.counts.unsqueeze(1)

    @property
    def before(self) -> Int[Tensor, " N"]:
        """Steps of the rollouts before each rollout."""
        return self.counts.cumsum(0) - self.counts

    @property
    def cell(self) -> Int[Tensor, "B T"]:
        """Flat index into the step grid (rollout * K + step) of each token's step; -1 where it was not sampled."""
        return torch.cat([self._cells.new_tensor([-1]), self._cells])[self.number]

    @property
    def step_of(self) -> Int[Tensor, "B T"]:
        """The step of each token within its rollout; -1 where it was not sampled."""
        return torch.where(self.number > 0, self.cell % self.width, -1)

    @property
    def lengths(self) -> Float[Tensor, "N K"]:
        """Tokens of each step."""
        return self.laid(torch.bincount(self._step_of_action, minlength=self.total).float())

    def sum(self, tokens: Float[Tensor, "B T"]) -> Float[Tensor, "N K"]:
        """Add up the sampled tokens of each step."""
        if self.total == len(self._actions):  # every step is a single token
            return self.first(tokens)
        sums = torch.zeros(self.total + 1, dtype=tokens.dtype, device=tokens.device)
        return self.laid(sums.index_add(0, self.number.flatten(), tokens.flatten())[1:])

    def first(self, tokens: Float[Tensor, "B T"]) -> Float[Tensor, "N K"]:
        """Take each step's first token: of a value, what was expected once the environment had spoken."""
        return self.laid(tokens.flatten()[self._openings])

    def resumed(self, tokens: Float[Tensor, "B T"], rollouts: Rollouts) -> Float[Tensor, "N K"]:
        """Take what stands just after the step before: of a value, what was expected before the environment spoke.

        Where no environment token lies between two steps, and at a rollout's first step, this is `first`.
        """
        opening = self._openings
        owner, places = rollouts.rollout_of.flatten(), rollouts.valid_mask.flatten().nonzero().squeeze(1)
        rank = torch.searchsorted(places, self._actions[self._closes])
        after = torch.cat([opening[:1], places[rank[:-1] + 1]])
        same = torch.ones_like(opening, dtype=torch.bool)
        same[1:] = owner[opening[1:]] == owner[opening[:-1]]
        return self.laid(tokens.flatten()[torch.where(same, after, opening)])

    def to_tokens(self, steps: Float[Tensor, "N K"]) -> Float[Tensor, "B T"]:
        """Give every sampled token its step's entry; all others get 0."""
        table = steps.new_zeros(self.total + 1)
        table[1:] = steps.flatten() if steps.numel() == self.total else steps.flatten().index_select(0, self._cells)
        if compiled.ready(table, self.number):
            return compiled.looked_up(table, self.number)
        return table.index_select(0, self.number.flatten()).view_as(self.number)

    def last_tokens(self) -> Bool[Tensor, "B T"]:
        """True at the last token of every step."""
        ends = torch.zeros(self.number.numel(), dtype=torch.bool, device=self.number.device)
        return ends.index_fill(0, self._actions[self._closes], True).view_as(self.number)

    def laid(self, flat: Float[Tensor, " S"]) -> Float[Tensor, "N K"]:
        """Lay one entry a step of the batch, in reading order, on the step grid."""
        if self.mask.numel() == self.total:
            return flat.view(self.mask.shape)
        grid = torch.zeros(self.mask.numel(), dtype=flat.dtype, device=flat.device)
        return grid.index_copy_(0, self._cells, flat).view(self.mask.shape)

    def place(self, scores: Scores, name: str, merge: Merge) -> Float[Tensor, "N K"]:
        """Lay given scores, one a step or one a sampled token, on the step grid; a rollout without any gets 0.

        merge: how the scores of a step's tokens become the step's.
        Raises InputError where the count fits neither.
        """
        by_step = scores.counts == self.counts
        if bool(by_step.all()):
            return self.laid(scores.flat)
        actions = torch.zeros_like(self.counts).index_add(0, self._owner_of_step, self._lengths_of_steps)
        by_token = scores.counts == actions
        for n in (scores.came & ~by_step & ~by_token).nonzero().flatten().tolist():
            raise InputError(
                f"rollout {n}: {int(scores.counts[n])} {name} came, which fits neither its {int(self.counts[n])} steps "
                f"nor its {int(actions[n])} sampled tokens"
            )
        counts = scores.counts.clamp(min=0)
        owner = torch.repeat_interleave(counts)
        index = torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
        step = self.before[owner] + index
        token = (actions.cumsum(0) - actions)[owner] + index
        of_step = torch.where(by_step[owner], step, self._step_of_action[token])
        return self.laid(merge(scores.flat, of_step, self.total))

    @cached_property
    def _cells(self) -> Int[Tensor, " S"]:
        """Where each step of the batch lies in the flattened step grid."""
        return self.mask.flatten().nonzero().squeeze(1)

    @cached_property
    def _actions(self) -> Int[Tensor, " A"]:
        """Where the sampled tokens stand in the flattened token grid."""
        return self.number.flatten().nonzero().squeeze(1)

    @cached_property
    def _step_of_action(self) -> Int[Tensor, " A"]:
        """The step, counted from 0 through the batch, of every sampled token."""
        return self.number.flatten()[self._actions].long() - 1

    @cached_property
    def _openings(self) -> Int[Tensor, " S"]:
        """Where each step's first token stands in the flattened token grid."""
        if self.total == len(self._actions):  # every step is a single token
            return self._actions
        return self._actions[self._lengths_of_steps.cumsum(0) - self._lengths_of_steps]

    @cached_property
    def _closes(self) -> Int[Tensor, " S"]:
        """Which of the sampled tokens is the last of each step."""
        return self._lengths_of_steps.cumsum(0) - 1

    @cached_property
    def _lengths_of_steps(self) -> Int[Tensor, " S"]:
        return torch.bincount(self._step_of_action, minlength=self.total)

    @property
    def _owner_of_step(self) -> Int[Tensor, " S"]:
        return torch.repeat_interleave(self.counts)


def added(entries: Float[Tensor, " E"], of_step: Int[Tensor, " E"], steps: int) -> Float[Tensor, " S"]:
    """Merge by adding up: for rewards."""
    return entries.new_zeros(steps).index_add(0, of_step, entries)


def first_of(entries: Float[Tensor, " E"], of_step: Int[Tensor, " E"], steps: int) -> Float[Tensor, " S"]:
    """Merge by taking the first: for values, which belong to the state just before the step."""
    begins = torch.ones_like(of_step, dtype=torch.bool)
    begins[1:] = of_step[1:] != of_step[:-1]
    return entries.new_zeros(steps).index_copy(0, of_step[begins], entries[begins])


def number_steps(rollouts: Rollouts, starts: Bool[Tensor, "B T"]) -> StepMap:
    """Make the map from the tokens at which a step starts; a rollout's first sampled token always does.

    Only sampled tokens are looked at, so a run of tool tokens neither starts a step nor takes part in one.
    """
    return _counted(rollouts, starts.flatten(), mark=True, closing=False)


def number_steps_at(rollouts: Rollouts, places: Int[Tensor, " C"]) -> StepMap:
    """As `number_steps`, from where in the flattened token grid the steps start: sampled tokens all."""
    starts = torch.zeros(rollouts.tokens.numel(), dtype=torch.bool, device=places.device)
    return _counted(rollouts, starts.index_fill_(0, places, True), mark=True, closing=False)


def number_steps_ending(rollouts: Rollouts, grid: Shaped[Tensor, "B T"], mark: int = True) -> StepMap:
    """As `number_steps`, from where steps end: where `grid` holds `mark`, and at a turn's last sampled token."""
    return _counted(rollouts, grid.flatten(), mark=mark, closing=True)


def _counted(rollouts: Rollouts, grid: Shaped[Tensor, " M"], *, mark: int, closing: bool) -> StepMap:
    """The map from a mark at each step's first token, or, `closing`, at its last. Only sampled tokens are looked at."""
    runs, mask = rollouts.runs.of_actions, rollouts.action_mask.flatten()
    forced, edge = (runs.opens_turn.roll(-1), runs.last) if closing else (runs.opens_rollout, runs.start)
    if compiled.ready(grid):
        number = compiled.running_count(grid, mark, (runs.start, runs.length, forced), closing=closing)
    else:
        marks = (grid == mark).index_fill_(0, edge[forced], True).logical_and_(mask).int()
        number = (marks.cumsum(0, dtype=torch.int32) + int(closing) * (1 - marks)) * mask
    reached = number[runs.last[runs.closes_rollout]].long()
    counts = torch.zeros_like(rollouts.groups)
    counts[runs.rollout[runs.closes_rollout]] = reached.diff(prepend=reached.new_zeros(1))
    return StepMap(number.view_as(rollouts.tokens), counts)
