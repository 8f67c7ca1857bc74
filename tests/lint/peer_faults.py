"""What others do to credit, in our own words: plain loops over one row after another, with none of our functions.

Each takes columns ([B, T] lists of numbers, masks of 0 and 1) and gives those that come of the fault. The right way, by
a loop too, stands first. docs/lint says which versions were read.
"""

from __future__ import annotations

import math

import torch

Grid = list[list[float]]


def right(batch: dict) -> dict:
    """GAE over sampled tokens: what lies between them costs nothing and has no say; a segment starts anew."""
    owners = batch.get("segments") or [[0] * len(row) for row in batch["action_mask"]]
    advantages = []
    for r, mask in enumerate(batch["action_mask"]):
        row, credit, value, owner = [0.0] * len(mask), 0.0, 0.0, None
        for t in reversed(range(len(mask))):
            if not mask[t]:
                continue
            if owners[r][t] != owner:
                credit, value, owner = 0.0, 0.0, owners[r][t]
            delta = batch["rewards"][r][t] + batch["gamma"] * value - batch["values"][r][t]
            credit = row[t] = delta + batch["gamma"] * batch["lam"] * credit
            value = batch["values"][r][t]
        advantages.append(row)
    return with_returns(batch, advantages)


def with_returns(batch: dict, advantages: Grid) -> dict:
    """Add what a trainer gets: advantages at sampled tokens, and returns = advantage + value there."""
    kept = [[a if m else 0.0 for a, m in zip(row, mask, strict=True)] for row, mask in rows(advantages, batch)]
    returns = [
        [a + v if m else 0.0 for a, v, m in zip(row, values, mask, strict=True)]
        for row, values, mask in zip(kept, batch["values"], batch["action_mask"], strict=True)
    ]
    return batch | {"advantages": kept, "returns": returns}


def rows(grid: Grid, batch: dict) -> zip:
    return zip(grid, batch["action_mask"], strict=True)


def walked(rewards: Grid, values: Grid, gamma: float, lam: float) -> Grid:
    """GAE at every place of a row, whatever stands there."""
    out = []
    for row_rewards, row_values in zip(rewards, values, strict=True):
        row, credit, after = [], 0.0, 0.0
        for reward, value in zip(reversed(row_rewards), reversed(row_values), strict=True):
            credit = reward + gamma * after - value + gamma * lam * credit
            after = value
            row.append(credit)
        out.append(row[::-1])
    return out


def masked(grid: Grid, batch: dict) -> Grid:
    return [[x if m else 0.0 for x, m in zip(row, mask, strict=True)] for row, mask in rows(grid, batch)]


def values_zeroed_then_walked(batch: dict) -> dict:
    """OpenRLHF: values and rewards are multiplied by the mask and then every place is a step."""
    advantages = walked(masked(batch["rewards"], batch), masked(batch["values"], batch), batch["gamma"], batch["lam"])
    return with_returns(batch, advantages)


def returns_decayed_by_place(batch: dict) -> dict:
    """OpenRLHF's reinforce: gamma is paid at every place, tool tokens too."""
    returns = []
    for row, mask in rows(batch["rewards"], batch):
        total, out = 0.0, []
        for reward, sampled in zip(reversed(row), reversed(mask), strict=True):
            total = (reward if sampled else 0.0) + batch["gamma"] * total
            out.append(total if sampled else 0.0)
        returns.append(out[::-1])
    return batch | {"advantages": returns, "returns": returns}


def summed_to_the_end(batch: dict) -> dict:
    """OpenRLHF's agents: the rewards of all turns are added up, and the sum is put on the last sampled token."""
    moved = [[0.0] * len(mask) for mask in batch["action_mask"]]
    for r, mask in enumerate(batch["action_mask"]):
        last = max(t for t, sampled in enumerate(mask) if sampled)
        moved[r][last] = sum(masked(batch["rewards"], batch)[r])
    return batch | {name: right(batch | {"rewards": moved})[name] for name in ("advantages", "returns")}


def walked_over_the_response(batch: dict) -> dict:
    """SkyRL: all tokens of the response are steps, those of the environment with whatever the critic says there."""
    cut = [[v if valid else 0.0 for v, valid in zip(*pair, strict=True)] for pair in valid_rows("values", batch)]
    paid = [[r if valid else 0.0 for r, valid in zip(*pair, strict=True)] for pair in valid_rows("rewards", batch)]
    return with_returns(batch, walked(paid, cut, batch["gamma"], batch["lam"]))


def valid_rows(name: str, batch: dict) -> zip:
    return zip(batch[name], batch["valid_mask"], strict=True)


def whitened_over(batch: dict, mean_over: list, spread_over: list) -> dict:
    """Whiten with statistics of other places than the sampled ones: SkyRL takes the mean over every place."""
    raw = torch.tensor(batch["advantages"], dtype=torch.float64)
    centre = raw[torch.tensor(mean_over).bool()].mean()
    spread = (raw - centre)[torch.tensor(spread_over).bool()].square().mean().clamp(min=1e-8).sqrt()
    return batch | {"advantages": masked(((raw - centre) / spread).tolist(), batch)}


def walked_over_everything(batch: dict) -> dict:
    """ROLL, slime: the mask is not asked; tool tokens and padding are steps with their values."""
    return with_returns(batch, walked(batch["rewards"], batch["values"], batch["gamma"], batch["lam"]))


def kl_charged_everywhere(batch: dict, coefficient: float) -> dict:
    """slime: the KL penalty goes into the reward of every token, tool tokens too."""
    rewards = [
        [reward - coefficient * kl for reward, kl in zip(row, kls, strict=True)]
        for row, kls in zip(batch["rewards"], batch["kl"], strict=True)
    ]
    return walked_over_everything(batch | {"rewards": rewards})


def last_reward_of_turns(batch: dict) -> dict:
    """ROLL's agentic_reinforce: of the rewards in a run of sampled tokens only the one at its end is seen."""
    seen = [
        [
            x if m and (t + 1 == len(mask) or not mask[t + 1]) else 0.0
            for t, (x, m) in enumerate(zip(row, mask, strict=True))
        ]
        for row, mask in rows(batch["rewards"], batch)
    ]
    return batch | {name: right(batch | {"rewards": seen})[name] for name in ("advantages", "returns")}


def reset_at_unsampled(batch: dict) -> dict:
    """verl before 0.9.1 (REINFORCE++), open-instruct: what runs back is set to 0 at every unsampled token."""
    advantages = []
    for r, mask in enumerate(batch["action_mask"]):
        row, credit, after = [0.0] * len(mask), 0.0, 0.0
        for t in reversed(range(len(mask))):
            if not mask[t]:
                credit, after = 0.0, 0.0
                continue
            delta = batch["rewards"][r][t] + batch["gamma"] * after - batch["values"][r][t]
            credit = row[t] = delta + batch["gamma"] * batch["lam"] * credit
            after = batch["values"][r][t]
        advantages.append(row)
    return with_returns(batch, advantages)


def longest_row_bootstrapped(batch: dict) -> dict:
    """AReaL: a row as long as the batch is wide counts as cut off, and its last value is what was still expected."""
    rewards = [list(row) for row in batch["rewards"]]
    for r, (mask, valid) in enumerate(zip(batch["action_mask"], batch["valid_mask"], strict=True)):
        if all(valid):
            last = max(t for t, sampled in enumerate(mask) if sampled)
            rewards[r][last] += batch["gamma"] * batch["values"][r][-1]
    return batch | {name: right(batch | {"rewards": rewards})[name] for name in ("advantages", "returns")}


def packed_as_one(batch: dict) -> dict:
    """A packed row is walked through without asking where a rollout ends."""
    found = right({name: column for name, column in batch.items() if name != "segments"})
    return batch | {name: found[name] for name in ("advantages", "returns")}


def grouped_by_position(rewards: list[float], size: int) -> list[float]:
    """slime, prime-rl (old issues): groups are windows of the batch, divided by nothing."""
    windows = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    return [reward - sum(window) / size for window in windows for reward in window]


def singletons_keep_their_score(rewards: list[float], groups: list[int]) -> list[float]:
    """verl's grpo: a group of one has mean 0 and deviation 1."""
    out = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        mean = sum(members) / len(members) if len(members) > 1 else 0.0
        squares = sum((r - mean) ** 2 for r in members)
        spread = math.sqrt(squares / (len(members) - 1)) if len(members) > 1 else 1.0
        out.append((reward - mean) / (spread + 1e-6))
    return out


def one_ratio_for_all(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor):
    """TRL, OpenRLHF, NeMo-RL: GSPO with a ratio [B, 1]. Gives the loss; its gradient is one number a row."""
    log_ratio = ((logprobs - old) * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    return -(log_ratio.exp() * advantages * mask).sum() / mask.sum()


def one_value_each_gradient(logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor):
    """verl, SkyRL: GSPO-token. The ratio has the answer's value and the token's gradient."""
    log_ratio = ((logprobs - old) * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    per_token = (log_ratio.detach() + logprobs - logprobs.detach()).exp()
    return -(per_token * advantages * mask).sum() / mask.sum()
