"""Ledgers of the library as columns for the linter, and columns with garbage wherever the policy sampled nothing."""

from __future__ import annotations

from itertools import cycle

import torch

from apportion.ledger import Ledger

GARBAGE = (float("nan"), float("inf"), float("-inf"), 1e9)


def columns_of(ledger: Ledger) -> dict:
    """What another system would hand in of this batch: rewards at sampled tokens, ids, and the advantages."""
    rollouts = ledger.rollouts
    rewards = torch.zeros(rollouts.tokens.shape, dtype=rollouts.outcome.dtype)
    values = torch.zeros_like(rewards)
    for n, (row, place) in enumerate(zip(rollouts.rows(), rollouts.places(), strict=True)):
        actions = place[torch.tensor(row.action_mask, dtype=torch.bool)]
        if len(actions) == 0:
            continue
        if row.outcome is None:
            rewards.view(-1)[actions] = float("nan")
            continue
        rewards.view(-1)[actions[-1]] = rollouts.outcome[n]
        if row.step_rewards is not None:
            rewards.view(-1)[actions] += torch.tensor(row.step_rewards, dtype=rewards.dtype)
        if row.step_values is not None:
            values.view(-1)[actions] = torch.tensor(row.step_values, dtype=rewards.dtype)
    return {
        "action_mask": rollouts.action_mask,
        "segments": rollouts.rollout_of,
        "groups": rollouts.of_tokens(rollouts.groups),
        "rewards": rewards,
        "values": values,
        "advantages": ledger.advantage,
    }


def poisoned(columns: dict, names: tuple[str, ...] = ("values", "returns", "kl", "token_loss")) -> dict:
    """The same columns, with NaN, inf and large numbers in those named wherever nothing was sampled."""
    mask = torch.as_tensor(columns["action_mask"]).bool()
    kinds = cycle(GARBAGE)
    garbage = torch.tensor([next(kinds) for _ in range(mask.numel())]).view(mask.shape)
    grids = {name: torch.as_tensor(columns[name]) for name in names if name in columns}
    return columns | {name: torch.where(mask, grid, garbage.to(grid.dtype)) for name, grid in grids.items()}
