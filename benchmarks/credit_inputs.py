"""What `credit.py` measures on, and the plain float64 loops that every timed function must agree with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from apportion import Rollouts

GAMMA, LAM = 0.99, 0.95
SEED = 0
THREADS = 2
ALLOWED = 1e-5
"""How far a float32 result may be from the loop's; what is further off is not timed."""


@dataclass(frozen=True)
class Grid:
    """Rewards and values of tokens [B, T]; where the policy sampled, and the last token of every segment."""

    rewards: Tensor
    values: Tensor
    mask: Tensor
    ends: Tensor

    @property
    def size(self) -> str:
        rows, columns = self.rewards.shape
        return f"{rows} × {columns}"

    def rollouts(self) -> Rollouts:
        """One rollout a segment."""
        turns = torch.zeros_like(self.mask, dtype=torch.int64)
        turns[:, 1:] = (self.mask[:, 1:] != self.mask[:, :-1]).cumsum(1)
        ends = self.ends.flatten()
        owner = (ends.cumsum(0) - ends.long()).view_as(self.ends)
        count = int(ends.sum())
        return Rollouts(
            tokens=torch.zeros_like(owner),
            rollout_of=owner,
            action_mask=self.mask,
            turns=turns,
            groups=torch.zeros(count, dtype=torch.int64),
            outcome=torch.zeros(count),
            ended=torch.ones(count, dtype=torch.bool),
        )


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def dense(rows: int, columns: int) -> Grid:
    """A row a rollout, every token sampled."""
    chance = seeded()
    rewards, values = (torch.randn(rows, columns, generator=chance) * 0.1 for _ in range(2))
    mask = torch.ones(rows, columns, dtype=torch.bool)
    ends = torch.zeros_like(mask)
    ends[:, -1] = True
    return Grid(rewards, values, mask, ends)


def with_tools(rows: int, columns: int) -> Grid:
    """A fifth of all tokens are a tool's, in runs of 40 to 80."""
    grid, chance = dense(rows, columns), seeded()
    pairs = columns // 220 + 1
    own = torch.randint(180, 301, (rows, pairs), generator=chance)
    tool = torch.randint(40, 81, (rows, pairs), generator=chance)
    edges = torch.stack([own, tool], 2).flatten(1).cumsum(1)
    run = torch.searchsorted(edges, torch.arange(columns).expand(rows, columns).contiguous(), right=True)
    return Grid(grid.rewards, grid.values, run % 2 == 0, grid.ends)


def packed(rows: int, columns: int, length: int = 512) -> Grid:
    """Segments of three to five quarters of `length` tokens, one after another in every row."""
    grid, chance = dense(rows, columns), seeded()
    sizes = torch.randint(length * 3 // 4, length * 5 // 4 + 1, (rows, 2 * columns // length + 1), generator=chance)
    last = sizes.cumsum(1) - 1
    ends = torch.zeros(rows, int(last.max()) + 1, dtype=torch.bool).scatter(1, last, True)[:, :columns]
    return Grid(grid.rewards, grid.values, grid.mask, ends | grid.ends)


def plain_gae(grid: Grid) -> Tensor:
    """Generalised advantages in float64, token by token backwards; 0 where nothing was sampled."""
    rewards, values = grid.rewards.double(), grid.values.double()
    found = torch.zeros_like(values)
    after = torch.zeros(len(values), dtype=torch.float64)
    value_after = after.clone()
    for t in reversed(range(values.shape[1])):
        after, value_after = (torch.where(grid.ends[:, t], 0.0, column) for column in (after, value_after))
        here = rewards[:, t] + GAMMA * value_after - values[:, t] + GAMMA * LAM * after
        found[:, t] = torch.where(grid.mask[:, t], here, 0.0)
        after = torch.where(grid.mask[:, t], here, after)
        value_after = torch.where(grid.mask[:, t], values[:, t], value_after)
    return found


def off_by(name: str, found: Tensor, exact: Tensor, mask: Tensor) -> float:
    """The largest difference; ends the program where it is too large for the time to mean anything."""
    largest = float(torch.where(mask, found.double() - exact, 0.0).abs().max())
    if not largest <= ALLOWED:
        raise SystemExit(f"{name} is off by {largest} from a plain loop in float64: not timed")
    return largest
