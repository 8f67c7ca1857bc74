"""Ratios and gradients: what the loss makes of the credit."""

from __future__ import annotations

import torch
from torch import Tensor

from apportion.lint.answers import by_rollout
from apportion.lint.batch import Batch
from apportion.lint.check import Case, Check, columns, of_actions
from apportion.lint.finding import Finding, broken, holds, not_checkable

COLLAPSED = "one ratio carries the gradient of a whole answer, so each token gets the mean of its advantages"


def collapsed(case: Case) -> Finding:
    """Broken where an answer's advantages differ from token to token and the gradient that they make does not."""
    batch = case.batch
    grads, advantages = batch.grids["policy_loss_grad"], batch.grids["advantages"]
    uneven = _spread(batch, advantages) > _rounding(batch, "advantages")
    moved = _largest(batch, grads) > 0
    looked_at = uneven & moved
    flat = looked_at & (_spread(batch, grads) <= _rounding(batch, "policy_loss_grad"))
    if not bool(looked_at.any()):
        return not_checkable("no answer has advantages that differ and a gradient")
    if not bool((flat == looked_at).all()):
        return holds(f"the gradient differs from token to token in {int((looked_at & ~flat).sum())} answers")
    share = by_rollout(batch, torch.where(batch.counted, grads, 0))
    whole = by_rollout(batch, torch.where(batch.counted, advantages, 0))
    expected = batch.of_tokens(share / torch.where(whole == 0, torch.nan, whole)) * advantages
    allowed = batch.of_tokens(_rounding(batch, "policy_loss_grad"))
    off = batch.counted & batch.of_tokens(flat) & ((grads - expected).abs() > allowed)
    place = batch.first(off if bool(off.any()) else batch.counted & batch.of_tokens(flat), "policy_loss_grad", expected)
    return broken("", place, f"{COLLAPSED} (as in GSPO in TRL 1.16, OpenRLHF 0.11, NeMo-RL)")


def ratio(case: Case) -> Finding:
    """Broken where the ratio is neither each token's nor the answer's over its sampled tokens."""
    batch = case.batch
    came = batch.grids["ratio"]
    raw = batch.grids["logprobs"] - batch.grids["old_logprobs"]
    change = torch.where(batch.counted, raw, 0)
    total, count = by_rollout(batch, change), by_rollout(batch, batch.counted.double())
    tokens = by_rollout(batch, batch.valid.double())
    everywhere = by_rollout(batch, torch.where(batch.valid, raw, 0).nan_to_num(neginf=-torch.inf, posinf=torch.inf))
    known = {
        "each token's own": change.exp(),
        "of the whole answer, the geometric mean": batch.of_tokens((total / count.clamp(min=1)).exp()),
        "of the whole answer, the product": batch.of_tokens(total.exp()),
    }
    wrong = {
        "tokens that were not sampled are in the mean": batch.of_tokens((everywhere / tokens.clamp(min=1)).exp()),
        "the mean is divided by all tokens, not by the sampled ones": batch.of_tokens(
            (total / tokens.clamp(min=1)).exp()
        ),
        "tokens that were not sampled are in the product": batch.of_tokens(everywhere.exp()),
    }
    for name, expected in known.items():
        if not bool(_apart(batch, came, expected).any()):
            return holds(f"the ratio is {name}")
    usual = (
        known["each token's own"]
        if _spread(batch, came).max() > 0
        else known["of the whole answer, the geometric mean"]
    )
    place = batch.first(_apart(batch, came, usual), "ratio", usual)
    named = (name for name, expected in wrong.items() if not bool(_apart(batch, came, expected).any()))
    return broken("", place, next(named, ""))


def _apart(batch: Batch, came: Tensor, expected: Tensor) -> Tensor:
    """Counted places where two ratios differ by more than rounding of the log-probabilities allows."""
    largest = max(float(batch.grids[name][batch.counted].abs().max()) for name in ("logprobs", "old_logprobs"))
    terms = int(batch.counted.sum(1).max())
    relative = batch.allowed("logprobs", "old_logprobs", "ratio", scale=max(1.0, largest), terms=terms)
    return batch.counted & ~((came - expected).abs() <= relative * expected)


def _spread(batch: Batch, grid: Tensor) -> Tensor:
    """How far apart the counted tokens of each rollout are."""
    return _extreme(batch, grid, "amax") - _extreme(batch, grid, "amin")


def _largest(batch: Batch, grid: Tensor) -> Tensor:
    return _extreme(batch, grid.abs(), "amax")


def _extreme(batch: Batch, grid: Tensor, which: str) -> Tensor:
    blank = torch.zeros(len(batch), dtype=grid.dtype)
    return blank.scatter_reduce(0, batch.rollout_of[batch.counted], grid[batch.counted], which, include_self=False)


def _rounding(batch: Batch, name: str) -> Tensor:
    """What rounding allows between two numbers of one rollout, for each rollout."""
    return batch.allowed_number(name, size=1.0) * _largest(batch, batch.grids[name])


COLLAPSE = Check(
    "credit-collapsed",
    "the gradient gives each token its own credit",
    "Use the token form of the sequence ratio: the value of the answer's ratio, the gradient of the token's.",
    columns("action_mask", "advantages", "policy_loss_grad"),
    collapsed,
    of_actions,
)
RATIO = Check(
    "ratio-differs",
    "a ratio is over sampled tokens alone",
    "Sum log-probability differences over the action mask and divide by the count of sampled tokens.",
    columns("action_mask", "logprobs", "old_logprobs", "ratio"),
    ratio,
    of_actions,
)
