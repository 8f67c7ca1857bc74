"""Laws: sums that must come out. Each gives one residual a rollout (or a group), 0 where the law holds.

They start from what the caller handed in (the outcome and the given step rewards), never from a column that the code
under test has made of it, and they add up in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Credit = Callable[[Float[Tensor, "N K"], Float[Tensor, "N K"]], Float[Tensor, "N K"]]


@dataclass(frozen=True)
class Residual:
    """How far a law is from holding: the largest residual, where, and what rounding allows."""

    law: str
    worst: float
    place: int
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.worst <= self.tolerance

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"BROKEN at {self.place}"
        return f"{self.law}: {verdict} (largest residual {self.worst:.2g}, rounding allows {self.tolerance:.2g})"


def residual(law: str, errors: Tensor, *, scale: float, dtype: torch.dtype) -> Residual:
    """Sum up a law's errors; NaN or inf among them counts as broken.

    scale: size of the numbers that were added, which sets what rounding in `dtype` allows.
    """
    flat = torch.nan_to_num(errors.double().abs().flatten(), nan=float("inf"), posinf=float("inf"))
    tolerance = 64 * torch.finfo(dtype).eps * max(1.0, scale)
    if flat.numel() == 0:
        return Residual(law, 0.0, 0, tolerance)
    return Residual(law, float(flat.max()), int(flat.argmax()), tolerance)


def conservation(
    credit: Float[Tensor, "N K"],
    rewards: Float[Tensor, "N J"],
    start_value: Float[Tensor, " N"],
    *,
    gamma: float = 1.0,
    lam: float = 0.0,
) -> Float[Tensor, " N"]:
    """Nothing is lost: sum_k gamma^k (credit[k] - gamma lam credit[k+1]) = sum_k gamma^k rewards[k] - start_value.

    With gamma 1 and lam 0: credit sums to reward minus starting value. With gamma 1, `rewards` may be one column of
    totals.
    """
    later = torch.cat([credit[:, 1:], torch.zeros_like(credit[:, :1])], dim=1)
    peeled = credit.double() - gamma * lam * later.double()
    return _discounted_sum(peeled, gamma) - _discounted_sum(rewards.double(), gamma) + start_value.double()


def consistency(
    credit: Float[Tensor, "N K"], credit_of: Credit, rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"]
) -> Float[Tensor, "N L"]:
    """Cutting a step in two keeps its total: join steps two by two; each pair's credit is the sum of its parts'.

    credit: as it was worked out step by step; credit_of: works it out anew from the joined rewards and values.
    """
    fine, rewards, values = _even(credit), _even(rewards), _even(values)
    joined = credit_of(rewards[:, ::2] + rewards[:, 1::2], values[:, ::2])
    return joined - (fine[:, ::2] + fine[:, 1::2])


def traceability(
    credit: Float[Tensor, "N K"], credit_of: Credit, rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"]
) -> Float[Tensor, "N K"]:
    """A step's credit depends only on what was seen just before and after it: take everything else away.

    credit: as it was worked out from whole rows; credit_of: works it out anew from each step alone.
    """
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    alone_rewards = torch.stack([rewards, torch.zeros_like(rewards)], dim=-1).flatten(0, 1)
    alone_values = torch.stack([values, after], dim=-1).flatten(0, 1)
    return credit_of(alone_rewards, alone_values)[:, 0].view_as(rewards) - credit


def group_balance(credit: Float[Tensor, "N K"], groups: Int[Tensor, " N"]) -> Float[Tensor, " G"]:
    """Credit of a group sums to 0: what one answer gains, its siblings lose."""
    sums = torch.zeros(int(groups.max()) + 1, dtype=torch.float64, device=credit.device)
    return sums.index_add(0, groups, credit.double().sum(1))


def silence(advantages: Float[Tensor, "B T"], counted: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """A token that was not sampled, or whose rollout was not scored, has advantage exactly 0; all others a number."""
    return torch.where(counted, torch.where(advantages.isfinite(), 0, torch.inf), advantages)


def _discounted_sum(grid: Tensor, gamma: float) -> Tensor:
    powers = gamma ** torch.arange(grid.shape[1], dtype=torch.float64, device=grid.device)
    return (powers * grid).sum(1)


def _even(grid: Tensor) -> Tensor:
    return torch.nn.functional.pad(grid, (0, grid.shape[1] % 2))
