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
    looked_at = _uneven(batch, "advantages") & (_largest(batch, grads) > 0)
    flat = looked_at & ~_uneven(batch, "policy_loss_grad")
    if not bool(looked_at.any()):
        return not_checkable("no answer has advantages that differ and a gradient")
    if not bool((flat == looked_at).all()):
        return holds(f"the gradient differs from token to token in {int((looked_at & ~flat).sum())} answers")
    given, spread = (by_rollout(batch, torch.where(batch.counted, grid, 0)) for grid in (grads, advantages))
    expected = batch.of_tokens(given / spread) * advantages
    mean = batch.of_tokens(spread / by_rollout(batch, batch.counted.double()))
    off = batch.counted & batch.of_tokens(flat) & (advantages != mean)
    pattern = f"{COLLAPSED} (as in GSPO in TRL 1.16, OpenRLHF 0.11, NeMo-RL)"
    return broken("", batch.first(off, "policy_loss_grad", expected), pattern)


def ratio(case: Case) -> Finding:
    """Broken where the ratio is neither each token's nor the answer's over its sampled tokens."""
    batch = case.batch
    came, own = batch.grids["ratio"], batch.grids["logprobs"] - batch.grids["old_logprobs"]
    sampled = by_rollout(batch, torch.where(batch.counted, own, 0))
    everywhere = by_rollout(batch, own.nan_to_num())
    count, tokens = (by_rollout(batch, mask.double()) for mask in (batch.counted, batch.valid))
    mean = batch.of_tokens((sampled / count).exp())
    known = {
        "each token's own": own.exp(),
        "of the whole answer, the geometric mean": mean,
        "of the whole answer, the product": batch.of_tokens(sampled.exp()),
    }
    wrong = {
        "tokens that were not sampled are in the mean": batch.of_tokens((everywhere / tokens).exp()),
        "the mean is divided by all tokens, not by the sampled ones": batch.of_tokens((sampled / tokens).exp()),
        "tokens that were not sampled are in the product": batch.of_tokens(everywhere.exp()),
    }
    for name, expected in known.items():
        if not bool(_apart(batch, expected).any()):
            return holds(f"the ratio is {name}")
    usual = known["each token's own"] if bool((_spread(batch, came) > 0).any()) else mean
    named = (name for name, expected in wrong.items() if not bool(_apart(batch, expected).any()))
    return broken("", batch.first(_apart(batch, usual), "ratio", usual), next(named, ""))


def _apart(batch: Batch, expected: Tensor) -> Tensor:
    """Counted places where the ratio differs by more than rounding, of the log-probabilities too, allows."""
    largest = max(float(batch.grids[name][batch.counted].abs().max()) for name in ("logprobs", "old_logprobs"))
    relative = batch.allowed("logprobs", "old_logprobs", scale=largest, terms=int(batch.counted.sum(1).max()))
    allowed = relative * expected + batch.allowed_number("ratio", size=expected)
    return batch.counted & ~((batch.grids["ratio"] - expected).abs() <= allowed)


def _uneven(batch: Batch, name: str) -> Tensor:
    """Rollouts in which a column differs from token to token by more than rounding allows."""
    grid = batch.grids[name]
    return _spread(batch, grid) > batch.allowed_number(name, size=_largest(batch, grid))


def _spread(batch: Batch, grid: Tensor) -> Tensor:
    """How far apart the counted tokens of each rollout are."""
    return _extreme(batch, grid, "amax") - _extreme(batch, grid, "amin")


def _largest(batch: Batch, grid: Tensor) -> Tensor:
    return _extreme(batch, grid.abs(), "amax")


def _extreme(batch: Batch, grid: Tensor, which: str) -> Tensor:
    blank = torch.zeros(len(batch), dtype=grid.dtype)
    return blank.scatter_reduce(0, batch.rollout_of[batch.counted], grid[batch.counted], which, include_self=False)


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
