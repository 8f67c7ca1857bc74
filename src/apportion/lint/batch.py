"""The tensors of one batch, whatever framework they are from, in one shape: a token grid [B, T].

Conventions. `rewards[b, t]` and `values[b, t]` belong to token t; a value is that of the state just before token t.
`action_mask` is True where the policy sampled. A rollout is a row, or a run of one segment id within a row (packing).
All numbers are in float64 here; `epsilons` remembers how exact they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.lint import tolerance
from apportion.lint.finding import Place
from apportion.lint.runs import begins
from apportion.lint.settings import Settings
from apportion.lint.tolerance import Size


@dataclass(frozen=True, eq=False)
class Batch:
    """What came, laid out. `came` names the columns; `grids` holds those of numbers, [B, T].

    valid: True where a token is; all True where nothing says what is padding (`knows_padding` False).
    rollout_of: which rollout a token belongs to, -1 in padding. groups and end_values: an entry a rollout.
    notes: what was done to the columns on the way in.
    """

    action_mask: Bool[Tensor, "B T"]
    valid: Bool[Tensor, "B T"]
    rollout_of: Int[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    knows_padding: bool
    came: frozenset[str]
    grids: Mapping[str, Tensor]
    epsilons: Mapping[str, float]
    groups: Int[Tensor, " N"] | None = None
    end_values: Float[Tensor, " N"] | None = None
    micro_batch: Int[Tensor, " B"] | None = None
    settings: Settings = field(default_factory=Settings)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Rollouts."""
        return int(self.rollout_of.max()) + 1

    @cached_property
    def sampled(self) -> Bool[Tensor, "B T"]:
        """Tokens of the policy; what is masked in within padding is none."""
        return self.action_mask & self.valid

    @cached_property
    def has_actions(self) -> Bool[Tensor, " N"]:
        """Rollouts in which the policy sampled something."""
        return torch.bincount(self.rollout_of[self.sampled], minlength=len(self)) > 0

    @cached_property
    def scored(self) -> Bool[Tensor, " N"]:
        """Rollouts without NaN among the rewards of their sampled tokens: NaN = not scored, which is not 0."""
        if "rewards" not in self.grids:
            return torch.ones_like(self.has_actions)
        unscored = self.rollout_of[self.sampled & self.grids["rewards"].isnan()]
        return torch.bincount(unscored, minlength=len(self)) == 0

    @cached_property
    def counted(self) -> Bool[Tensor, "B T"]:
        """Sampled tokens of rollouts that were scored: those that have credit."""
        return self.sampled & self.of_tokens(self.scored)

    @cached_property
    def next_counted(self) -> Int[Tensor, "B T"]:
        """For every place, where in the flattened grid the next counted token stands; after the last, that one."""
        counted = self.counted.flatten().nonzero().squeeze(1)
        index = torch.searchsorted(counted, self.places, right=True)
        return counted[index.clamp(max=len(counted) - 1)]

    @cached_property
    def goes_on(self) -> Bool[Tensor, "B T"]:
        """True where the next counted token is of the same rollout."""
        return (self.next_counted > self.places) & (self.rollout_of == self.at_next(self.rollout_of))

    @cached_property
    def rollout_ends(self) -> Bool[Tensor, "B T"]:
        """True at the last counted token of every rollout."""
        return self.counted & ~self.goes_on

    @cached_property
    def turn_ends(self) -> Bool[Tensor, "B T"]:
        """True at a counted token after which the environment speaks before the rollout's next one."""
        return self.counted & self.goes_on & (self.next_counted != self.places + 1)

    @cached_property
    def neighbour_follows(self) -> Bool[Tensor, "B T"]:
        """True at the last counted token of a rollout after which another has counted tokens in the same row."""
        return self.rollout_ends & (self.next_counted > self.places) & (self.row_of == self.at_next(self.row_of))

    @cached_property
    def tail(self) -> Bool[Tensor, "B T"]:
        """Padding after the row's last token; where nothing says what is padding, all after its last sampled one."""
        held = self.valid if self.knows_padding else self.sampled
        return held.flip(1).cumsum(1).flip(1) == 0

    @cached_property
    def has_gaps(self) -> bool:
        """Does the environment speak between a rollout's sampled tokens, or (as far as is known) after the last?"""
        after = self.rollout_ends[:, :-1] & (self.rollout_of[:, 1:] == self.rollout_of[:, :-1])
        return bool(self.turn_ends.any()) or (self.knows_padding and bool(after.any()))

    @cached_property
    def cannot_leak(self) -> frozenset[str]:
        """The leaks that this batch has nowhere to show: `gap`, `padding`, `segment`."""
        present = {
            "gap": self.has_gaps,
            "padding": bool(self.tail.any()),
            "segment": bool(self.neighbour_follows.any()),
        }
        return frozenset(kind for kind, there in present.items() if not there)

    @property
    def places(self) -> Int[Tensor, "B T"]:
        """Where each place stands in the flattened grid."""
        return torch.arange(self.valid.numel()).view(self.valid.shape)

    def at_next(self, grid: Tensor) -> Tensor:
        """What stands at the next counted token, whosever it is."""
        return grid.flatten()[self.next_counted]

    @property
    def padding(self) -> Bool[Tensor, "B T"]:
        return ~self.valid

    @property
    def row_of(self) -> Int[Tensor, "B T"]:
        """The row of each place."""
        rows = torch.arange(self.valid.shape[0], device=self.valid.device)
        return rows.unsqueeze(1).expand_as(self.valid)

    def of_tokens(self, entries: Tensor) -> Tensor:
        """Give every token its rollout's entry of `entries` [N]; padding gets rollout 0's."""
        return entries[self.rollout_of.clamp(min=0)]

    def lacking(self, *names: str) -> tuple[str, ...]:
        """Those of the names that did not come; `a or b` needs one of the two."""
        return tuple(name for name in names if not any(self.has(part) for part in name.split(" or ")))

    def has(self, name: str) -> bool:
        return name in self.came or getattr(self.settings, name, None) is not None

    def allowed(self, *names: str, scale: float, terms: int) -> float:
        """What rounding allows for a sum of `terms` numbers of these columns."""
        stored = self.stored(*names)
        return tolerance.of_sum(stored, scale=scale, terms=terms) + (self.settings.tolerance or 0.0)

    def allowed_number(self, *names: str, size: Size) -> Size:
        """What rounding allows for a single number of that size in these columns."""
        return tolerance.of_number(self.stored(*names), size) + (self.settings.tolerance or 0.0)

    def stored(self, *names: str) -> float:
        """The relative spacing of the coarsest of these columns."""
        return max((self.epsilons[name] for name in names if name in self.epsilons), default=tolerance.FLOAT32)

    def first(self, places: Bool[Tensor, "B T"], column: str, expected: Float[Tensor, "B T"] | float | None) -> Place:
        """The first of these places, with the number that came in `column` and the one expected."""
        row, position = places.nonzero()[0].tolist()
        should = expected[row, position] if isinstance(expected, Tensor) else expected
        came = float(self.grids[column][row, position])
        return Place(row, position, column, came, None if should is None else float(should))

    def of_rows(self, rows: Int[Tensor, " R"]) -> Batch:
        """These rows alone, in this order; rollouts are numbered anew."""
        valid, owner = self.valid[rows], self.rollout_of[rows]
        kept = owner[valid][begins(owner[valid])]
        number = torch.zeros_like(self.has_actions, dtype=torch.int64).index_copy(0, kept, torch.arange(len(kept)))
        return replace(
            self,
            action_mask=self.action_mask[rows],
            valid=valid,
            rollout_of=torch.where(valid, number[owner.clamp(min=0)], owner),
            segments=self.segments[rows],
            grids={name: grid[rows] for name, grid in self.grids.items()},
            groups=None if self.groups is None else self.groups[kept],
            end_values=None if self.end_values is None else self.end_values[kept],
            micro_batch=None if self.micro_batch is None else self.micro_batch[rows],
        )

    def without(self, names: tuple[str, ...]) -> Batch:
        """The batch as if these columns had not come."""
        grids = {name: grid for name, grid in self.grids.items() if name not in names}
        return replace(self, came=self.came - set(names), grids=grids)
