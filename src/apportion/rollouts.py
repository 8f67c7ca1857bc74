"""Rollouts: what was sampled, by whom, and how it ended. Nothing here is computed credit.

Shapes. `B T` is the token grid as it came (rows may be padded, packed, or hold a piece of a rollout); `N` counts
rollouts. One map, `rollout_of`, says which rollout each token belongs to, and with that padding (-1), packing
(several rollouts in a row) and rollouts cut into several rows are the same thing. Read row by row, the tokens of
rollout 0 come first, then those of rollout 1, and so on; so a rollout's tokens are always in order and in one run.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError

Scores = tuple[float, ...] | None

ROUNDING = 1e-4
"""How far above 0 rounding may lift a log-probability."""


@dataclass(frozen=True)
class Rollout:
    """One sampled answer with its prompt, as plain Python; `collate` makes a batch of them.

    `tokens`, `action_mask` and, where given, `turns`, `logprobs` and `offsets` have one entry a token of prompt and
    answer. `offsets` are (start, end) characters in `text`; a character of several tokens belongs to the last.
    `step_rewards` and `step_values` have one entry a step or one a sampled token.
    """

    tokens: Sequence[int]
    action_mask: Sequence[bool]
    group: Hashable
    outcome: float | None = None
    ended: bool = True
    id: str = ""
    text: str | None = None
    turns: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    offsets: Sequence[tuple[int, int]] | None = None
    step_rewards: Scores = None
    step_values: Scores = None


@dataclass(frozen=True, eq=False)
class Rollouts:
    """A batch of rollouts, checked when it is made.

    action_mask: True = sampled by the policy; prompt, tool output, user turns and padding are False.
    turns: index of the turn that a token belongs to (-1 in padding).
    outcome: the judge's score of the whole answer; NaN = not scored, which is not 0.
    ended: stopped by itself, as against cut off (truncated).
    logprobs: the sampler's, float32, NaN where nothing was sampled.
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
    step_rewards: tuple[Scores, ...] = ()
    step_values: tuple[Scores, ...] = ()

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

    @property
    def action_counts(self) -> Int[Tensor, " N"]:
        """Sampled tokens of each rollout."""
        return torch.bincount(self.rollout_of[self.action_mask], minlength=len(self))

    @property
    def votes(self) -> Bool[Tensor, " N"]:
        """Rollouts that were scored and sampled something: only these enter any statistic or loss."""
        return ~self.outcome.isnan() & (self.action_counts > 0)

    def of_tokens(self, values: Tensor) -> Tensor:
        """Give every token its rollout's entry of `values` [N]; padding gets rollout 0's."""
        return values[self.rollout_of.clamp(min=0)]

    def with_outcome(self, outcome: Float[Tensor, " N"]) -> Rollouts:
        return replace(self, outcome=outcome)

    def to(self, device: torch.device | str) -> Rollouts:
        grids = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {k: v.to(device) for k, v in grids.items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def rows(self) -> list[Rollout]:
        """The rollouts one by one, as `collate` took them."""
        return [self._row(n, place) for n, place in enumerate(self.places())]

    def places(self) -> tuple[Tensor, ...]:
        """For each rollout, where its tokens stand in a flattened token grid, in reading order."""
        flat_rollout = self.rollout_of.flatten()
        lengths = torch.bincount(flat_rollout[flat_rollout >= 0], minlength=len(self)).tolist()
        return tuple(torch.split(self.valid_mask.flatten().nonzero().squeeze(1), lengths))

    def refuse_missing(self, scores: tuple[Scores, ...], why: str) -> None:
        """Raise InputError naming the first rollout that has a vote and none of these scores: none is not 0."""
        for n, votes in enumerate(self.votes.tolist()):
            if votes and scores[n] is None:
                raise InputError(f"rollout {self.ids[n]} has no {why}")

    def _row(self, n: int, place: Tensor) -> Rollout:
        def column(grid: Tensor | None) -> Any:
            return None if grid is None else grid.flatten()[place].tolist()

        grid = self.offsets if self.texts[n] is not None else None
        spans = None if grid is None else grid.flatten(0, 1)[place].tolist()
        score = float(self.outcome[n])
        return Rollout(
            tokens=column(self.tokens),
            action_mask=self.action_mask.flatten()[place].tolist(),
            group=self.group_names[int(self.groups[n])],
            outcome=None if score != score else score,
            ended=bool(self.ended[n]),
            id=self.ids[n],
            text=self.texts[n],
            turns=self.turns.flatten()[place].tolist(),
            logprobs=column(self.logprobs),
            offsets=None if spans is None else [(a, b) for a, b in spans],
            step_rewards=self.step_rewards[n],
            step_values=self.step_values[n],
        )

    def response(self, n: int) -> str:
        """The text of rollout n from its first sampled token on."""
        text = self.texts[n]
        if text is None or self.offsets is None:
            raise InputError(f"the text of rollout {n} ({self.ids[n]}) was asked for, but it came without text")
        first = (self.action_mask & (self.rollout_of == n)).flatten().nonzero()
        return text[int(self.offsets.flatten(0, 1)[first[0, 0], 0]) :] if len(first) else ""


def collate(rows: Sequence[Rollout], *, dtype: torch.dtype = torch.float32) -> Rollouts:
    """Make a right-padded batch, one row a rollout.

    dtype: of the outcome, and so of all credit computed from it.
    Raises InputError naming the row, what came and what was expected.
    """
    if not rows:
        raise InputError("a batch needs at least one rollout, none came")
    for n, row in enumerate(rows):
        _check_row(n, row)
    return _assemble([[row] for row in rows], list(rows), dtype)


def pack(rollouts: Rollouts, length: int) -> Rollouts:
    """Lay the rollouts one after another into rows of at most `length` tokens, keeping their order.

    Raises InputError when a rollout is longer than a row.
    """
    rows = rollouts.rows()
    lines: list[list[Rollout]] = [[]]
    for row in rows:
        if len(row.tokens) > length:
            raise InputError(f"rollout {row.id} has {len(row.tokens)} tokens, a packed row holds {length}")
        if sum(len(other.tokens) for other in lines[-1]) + len(row.tokens) > length:
            lines.append([])
        lines[-1].append(row)
    return _assemble(lines, rows, rollouts.outcome.dtype)


def _assemble(lines: list[list[Rollout]], rows: list[Rollout], dtype: torch.dtype) -> Rollouts:
    width = max(1, *(sum(len(row.tokens) for row in line) for line in lines))

    def grid(entries: list[list[list[int]]], fill: int) -> Tensor:
        flat = [[x for part in line for x in part] for line in entries]
        return torch.tensor([line + [fill] * (width - len(line)) for line in flat], dtype=torch.int64)

    def floats(entries: list[list[Sequence[float]]]) -> Tensor:
        flat = [[x for part in line for x in part] for line in entries]
        return torch.tensor([line + [float("nan")] * (width - len(line)) for line in flat], dtype=torch.float32)

    numbers = iter(range(len(rows)))
    names = list(dict.fromkeys(row.group for row in rows))
    index = {name: g for g, name in enumerate(names)}
    has_logprobs = all(row.logprobs is not None for row in rows)
    has_offsets = any(row.offsets is not None for row in rows)
    return Rollouts(
        tokens=grid([[list(r.tokens) for r in line] for line in lines], 0),
        rollout_of=grid([[[next(numbers)] * len(r.tokens) for r in line] for line in lines], -1),
        action_mask=grid([[[int(a) for a in r.action_mask] for r in line] for line in lines], 0).bool(),
        turns=grid([[_turns(r) for r in line] for line in lines], -1),
        groups=torch.tensor([index[row.group] for row in rows]),
        outcome=torch.tensor([float("nan") if r.outcome is None else float(r.outcome) for r in rows], dtype=dtype),
        ended=torch.tensor([bool(row.ended) for row in rows]),
        logprobs=floats([[r.logprobs or [] for r in line] for line in lines]) if has_logprobs else None,
        offsets=torch.stack(
            [grid([[_side(r, side) for r in line] for line in lines], 0) for side in (0, 1)],
            dim=-1,
        )
        if has_offsets
        else None,
        ids=tuple(row.id or str(n) for n, row in enumerate(rows)),
        group_names=tuple(names),
        texts=tuple(row.text for row in rows),
        step_rewards=tuple(row.step_rewards for row in rows),
        step_values=tuple(row.step_values for row in rows),
    )


def _side(row: Rollout, side: int) -> list[int]:
    """Where each token starts (0) or ends (1) in the text; 0 where that is not known."""
    return [0] * len(row.tokens) if row.offsets is None else [span[side] for span in row.offsets]


def _turns(row: Rollout) -> list[int]:
    """The given turns, or a new turn wherever sampled and other tokens meet."""
    if row.turns is not None:
        return list(row.turns)
    turns = [0]
    for before, now in pairwise(row.action_mask):
        turns.append(turns[-1] + (bool(before) != bool(now)))
    return turns[: len(row.tokens)]


def _check_row(n: int, row: Rollout) -> None:
    length = len(row.tokens)
    for name in ("action_mask", "turns", "logprobs", "offsets"):
        column = getattr(row, name)
        if column is not None and len(column) != length:
            raise InputError(f"rollout {n}: {name} has {len(column)} entries for {length} tokens")


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
        "step_rewards": (None,) * count,
        "step_values": (None,) * count,
    }
    for name, default in defaults.items():
        if not getattr(batch, name):
            object.__setattr__(batch, name, default)
    if int(batch.groups.min()) < 0 or len(batch.group_names) <= int(batch.groups.max()):
        raise InputError(f"groups must count from 0 and each have a name; {len(batch.group_names)} names came")
    empty = (torch.bincount(batch.groups, minlength=len(batch.group_names)) == 0).nonzero()
    if len(empty):
        raise InputError(f"group {int(empty[0])} ({batch.group_names[int(empty[0])]}) has no rollout")
    for name in ("outcome", "ended", "ids", "texts", "step_rewards", "step_values"):
        if len(getattr(batch, name)) != count:
            raise InputError(f"{name} has {len(getattr(batch, name))} entries for {count} rollouts")


def _check_order(batch: Rollouts) -> None:
    owners = batch.rollout_of[batch.valid_mask]
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
    for name in ("step_rewards", "step_values"):
        for n, scores in enumerate(getattr(batch, name)):
            for k, score in enumerate(scores or ()):
                if score is None or not math.isfinite(score):
                    raise InputError(f"rollout {n}: {name}[{k}] is {score}; every entry must be a finite number")
    if batch.logprobs is not None:
        sampled = batch.logprobs.isfinite() & (batch.logprobs <= ROUNDING)
        broken = (batch.action_mask & ~sampled).nonzero()
        if len(broken):
            row, position = broken[0].tolist()
            came = float(batch.logprobs[row, position])
            raise InputError(
                f"row {row}, position {position}: log-probability of a sampled token is {came}, expected <= 0"
            )
