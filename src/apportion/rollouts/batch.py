"""A batch of rollouts as tensors.

Shapes. `B T` is the token grid as it came (rows may be padded, packed, or hold a piece of a rollout); `N` counts
rollouts. One map, `rollout_of`, says which rollout each token belongs to, and with that padding (-1), packing
(several rollouts in a row) and rollouts cut into several rows are the same thing. Read row by row, the tokens of
rollout 0 come first, then those of rollout 1, and so on; so a rollout's tokens are always in order and in one run.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts.row import Rollout
from apportion.rollouts.runs import Runs, runs_of
from apportion.rollouts.scores import Scores

PER_ROLLOUT = ("outcome", "ended", "ids", "texts", "end_values", "branched_at")
ROUNDING = 1e-4
"""How far above 0 rounding may lift a log-probability."""


@dataclass(frozen=True, eq=False)
class Rollouts:
    """A batch of rollouts, checked when it is made.

    action_mask: True = sampled by the policy; prompt, tool output, user turns and padding are False.
    turns: index of the turn that a token belongs to (-1 in padding).
    outcome: the judge's score of the whole answer; NaN = not scored, which is not 0.
    ended: stopped by itself, as against cut off (truncated).
    logprobs: the sampler's, float32, NaN where nothing was sampled.
    step_rewards, step_values: one a step or one a sampled token; None where no rollout came with any.
    end_values: what was still expected after a rollout's last token, NaN where that is not known; read only where a
        rollout did not end by itself.
    branched_at: first tokens of each rollout that stand in an earlier one of its group; 0 where it is no branch.
    """

    tokens: Int[Tensor, "B T"]
    rollout_of: Int[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    turns: Int[Tensor, "B T"]
    groups: Int[Tensor, " N"]
    outcome: Float[Tensor, " N"]
    ended: Bool[Tensor, " N"]
    logprobs: Float[Tensor, "B T"] | None = None
    offsets: Int[Tensor, "B T 2"] | None = None
    ids: tuple[str, ...] = ()
    group_names: tuple[Hashable, ...] = ()
    texts: tuple[str | None, ...] = ()
    step_rewards: Scores | None = None
    step_values: Scores | None = None
    end_values: Float[Tensor, " N"] | None = None
    branched_at: Int[Tensor, " N"] | None = None

    def __post_init__(self) -> None:
        _check_types(self)
        _check_shapes(self)
        _check_order(self)
        _check_numbers(self)

    def __len__(self) -> int:
        return int(self.groups.shape[0])

    @property
    def valid_mask(self) -> Bool[Tensor, "B T"]:
        """True where a token is, False in padding."""
        return self.rollout_of >= 0

    @cached_property
    def runs(self) -> Runs:
        """Stretches of tokens with rollout, turn and sampler in common, in reading order."""
        return runs_of(self.rollout_of, self.turns, self.action_mask)

    @cached_property
    def action_counts(self) -> Int[Tensor, " N"]:
        """Sampled tokens of each rollout."""
        runs = self.runs.of_actions
        return torch.zeros_like(self.groups).index_add(0, runs.rollout, runs.length)

    @cached_property
    def votes(self) -> Bool[Tensor, " N"]:
        """Rollouts that were scored and sampled something: only these enter any statistic or loss."""
        return ~self.outcome.isnan() & (self.action_counts > 0)

    @cached_property
    def counted_mask(self) -> Bool[Tensor, "B T"]:
        """Tokens that take part in the loss: sampled, of a rollout that has a vote, and in no earlier one's stead."""
        mask = self.action_mask if bool(self.votes.all()) else self.action_mask & self.of_tokens(self.votes)
        return mask if self.branched_at is None else mask & (self.place_in_rollout >= self.of_tokens(self.branched_at))

    @property
    def place_in_rollout(self) -> Int[Tensor, "B T"]:
        """The number of each token in its rollout, from 0; what stands in padding means nothing."""
        place = self.valid_mask.flatten().cumsum(0) - 1
        runs = self.runs
        first = torch.zeros_like(self.groups)
        first[runs.rollout[runs.opens_rollout]] = place[runs.start[runs.opens_rollout]]
        return place.view_as(self.tokens) - self.of_tokens(first)

    def of_tokens(self, values: Tensor) -> Tensor:
        """Give every token its rollout's entry of `values` [N]; padding gets rollout 0's."""
        return values[self.rollout_of.clamp(min=0)]

    def with_outcome(self, outcome: Float[Tensor, " N"]) -> Rollouts:
        return replace(self, outcome=outcome)

    def to(self, device: torch.device | str) -> Rollouts:
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {k: v.to(device) for k, v in columns.items() if isinstance(v, Tensor | Scores)}
        return replace(self, **moved)

    def rows(self) -> list[Rollout]:
        """The rollouts one by one, as `collate` took them."""
        pairs = zip(self.scored_rows(), self.places(), strict=True)
        return [self._with_tokens(row, n, place) for n, (row, place) in enumerate(pairs)]

    def scored_rows(self) -> list[Rollout]:
        """What is known of the rollouts one by one besides their tokens, of which they have none here."""
        none = [None] * len(self)
        rewards, values = (none if s is None else s.rows() for s in (self.step_rewards, self.step_values))
        return [
            Rollout(
                tokens=(),
                action_mask=(),
                group=self.group_names[group],
                outcome=outcome,
                ended=ended,
                id=self.ids[n],
                step_rewards=rewards[n],
                step_values=values[n],
                end_value=end,
                branched_at=branched,
            )
            for n, (group, outcome, ended, end, branched) in enumerate(
                zip(
                    self.groups.tolist(),
                    _known(self.outcome),
                    self.ended.tolist(),
                    none if self.end_values is None else _known(self.end_values),
                    [0] * len(self) if self.branched_at is None else self.branched_at.tolist(),
                    strict=True,
                )
            )
        ]

    def places(self) -> tuple[Tensor, ...]:
        """For each rollout, where its tokens stand in a flattened token grid, in reading order."""
        flat_rollout = self.rollout_of.flatten()
        lengths = torch.bincount(flat_rollout[flat_rollout >= 0], minlength=len(self)).tolist()
        return tuple(torch.split(self.valid_mask.flatten().nonzero().squeeze(1), lengths))

    def required(self, scores: Scores | None, why: str) -> Scores:
        """The scores, or InputError naming the first rollout that has a vote and none of them: none is not 0."""
        came = torch.zeros_like(self.votes) if scores is None else scores.came
        missing = (self.votes & ~came).nonzero()
        if len(missing):
            raise InputError(f"rollout {self.ids[int(missing[0])]} has no {why}")
        return scores or Scores.of([None] * len(self))

    def _with_tokens(self, row: Rollout, n: int, place: Tensor) -> Rollout:
        def column(grid: Tensor | None) -> Any:
            return None if grid is None else grid.flatten()[place].tolist()

        grid = self.offsets if self.texts[n] is not None else None
        spans = None if grid is None else grid.flatten(0, 1)[place].tolist()
        return replace(
            row,
            tokens=column(self.tokens),
            action_mask=self.action_mask.flatten()[place].tolist(),
            text=self.texts[n],
            turns=self.turns.flatten()[place].tolist(),
            logprobs=column(self.logprobs),
            offsets=None if spans is None else [(a, b) for a, b in spans],
        )

    def response(self, n: int) -> str:
        """The text of rollout n from its first sampled token on."""
        text = self.texts[n]
        if text is None or self.offsets is None:
            raise InputError(f"the text of rollout {n} ({self.ids[n]}) was asked for, but it came without text")
        first = (self.action_mask & (self.rollout_of == n)).flatten().nonzero()
        return text[int(self.offsets.flatten(0, 1)[first[0, 0], 0]) :] if len(first) else ""


def _known(numbers: Tensor) -> list[float | None]:
    """As plain numbers; None for NaN."""
    return [None if number != number else number for number in numbers.tolist()]


def _check_types(batch: Rollouts) -> None:
    integers, floats, truth = (torch.int64,), (torch.float32, torch.float64), (torch.bool,)
    wanted = {
        "tokens": (2, integers),
        "rollout_of": (2, integers),
        "action_mask": (2, truth),
        "turns": (2, integers),
        "groups": (1, integers),
        "outcome": (1, floats),
        "ended": (1, truth),
        "end_values": (1, floats),
        "branched_at": (1, integers),
        "logprobs": (2, (torch.float32,)),
        "offsets": (3, integers),
    }
    for name, (axes, types) in wanted.items():
        tensor = getattr(batch, name)
        if tensor is not None and (tensor.dim() != axes or tensor.dtype not in types):
            kinds = " or ".join(str(kind).removeprefix("torch.") for kind in types)
            came = f"{str(tensor.dtype).removeprefix('torch.')} with {tensor.dim()} axes"
            raise InputError(f"{name} must be {kinds} with {axes} axes, got {came}")


def _check_shapes(batch: Rollouts) -> None:
    tokens, count = batch.tokens.shape, len(batch)
    for name in ("rollout_of", "action_mask", "turns", "logprobs"):
        grid = getattr(batch, name)
        if grid is not None and grid.shape != tokens:
            raise InputError(f"{name} has shape {tuple(grid.shape)}, tokens have {tuple(tokens)}")
    if batch.offsets is not None and batch.offsets.shape != (*tokens, 2):
        raise InputError(f"offsets have shape {tuple(batch.offsets.shape)}, expected {(*tuple(tokens), 2)}")
    if count == 0:
        raise InputError("a batch needs at least one rollout, none came")
    defaults = {
        "ids": tuple(str(n) for n in range(count)),
        "group_names": tuple(range(int(batch.groups.max()) + 1)),
        "texts": (None,) * count,
    }
    for name, default in defaults.items():
        if not getattr(batch, name):
            object.__setattr__(batch, name, default)
    if int(batch.groups.min()) < 0 or len(batch.group_names) <= int(batch.groups.max()):
        raise InputError(f"groups must count from 0 and each have a name; {len(batch.group_names)} names came")
    empty = (torch.bincount(batch.groups, minlength=len(batch.group_names)) == 0).nonzero()
    if len(empty):
        raise InputError(f"group {int(empty[0])} ({batch.group_names[int(empty[0])]}) has no rollout")
    scores = {name: getattr(batch, name) for name in ("step_rewards", "step_values")}
    per_rollout = {name: getattr(batch, name) for name in PER_ROLLOUT}
    per_rollout |= {name: given.counts for name, given in scores.items() if given is not None}
    for name, column in per_rollout.items():
        if column is not None and len(column) != count:
            raise InputError(f"{name} has {len(column)} entries for {count} rollouts")
    for name, given in scores.items():
        if given is not None and len(given.flat) != int(given.counts.clamp(min=0).sum()):
            raise InputError(f"{name} holds {len(given.flat)} scores, its counts add up to another number")


def _check_order(batch: Rollouts) -> None:
    owners = batch.runs.rollout
    if owners.numel() and (bool((owners.diff() < 0).any()) or int(owners[-1]) >= len(batch)):
        raise InputError(
            f"rollout_of must count 0 to {len(batch) - 1} in reading order, the rows of a rollout one after another"
        )
    astray = (batch.action_mask & ~batch.valid_mask).nonzero()
    if len(astray):
        row, position = astray[0].tolist()
        raise InputError(f"row {row}, position {position}: action_mask is True in padding")


def _check_numbers(batch: Rollouts) -> None:
    endless = batch.outcome.isinf().nonzero()
    if len(endless):
        raise InputError(
            f"rollout {batch.ids[int(endless[0])]}: outcome is infinite; use a number, or NaN for unscored"
        )
    if batch.end_values is not None and bool(batch.end_values.isinf().any()):
        n = int(batch.end_values.isinf().nonzero()[0])
        raise InputError(f"rollout {batch.ids[n]}: its end value is infinite; use a number, or NaN for not known")
    for name in ("step_rewards", "step_values"):
        _check_scores(name, getattr(batch, name))
    if batch.logprobs is not None:
        sampled = batch.logprobs.isfinite() & (batch.logprobs <= ROUNDING)
        broken = (batch.action_mask & ~sampled).nonzero()
        if len(broken):
            row, position = broken[0].tolist()
            came = float(batch.logprobs[row, position])
            raise InputError(
                f"row {row}, position {position}: log-probability of a sampled token is {came}, expected <= 0"
            )


def _check_scores(name: str, scores: Scores | None) -> None:
    if scores is None or bool(scores.flat.isfinite().all()):
        return
    broken = int((~scores.flat.isfinite()).nonzero()[0])
    ends = scores.counts.clamp(min=0).cumsum(0)
    n = int(torch.searchsorted(ends, broken, right=True))
    k = broken - int(ends[n]) + int(scores.counts[n])
    came = float(scores.flat[broken])
    raise InputError(f"rollout {n}: {name}[{k}] is {came}; every entry must be a finite number")
