"""The figures of a step that come from its ledger, and the pass rate with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from apportion.ledger import Ledger
from apportion.train.tally import Figures

PASS = 1.0
"""An answer passes when its outcome is at least this."""


@dataclass(frozen=True)
class PassRate:
    """Answers that passed, of those scored, with the 95 % Wilson interval."""

    passed: int
    scored: int

    @property
    def rate(self) -> float:
        return self.passed / self.scored if self.scored else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.scored:
            return (0.0, 1.0)
        z, n = 1.959964, self.scored
        centre = (self.rate + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(self.rate * (1 - self.rate) / n + z * z / (4 * n * n))
        return (max(0.0, centre - half), min(1.0, centre + half))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.1%} [{low:.1%}, {high:.1%}] of {self.scored}"

    def as_dict(self) -> Figures:
        low, high = self.interval
        return {**asdict(self), "rate": self.rate if self.scored else None, "low": low, "high": high}


def pass_rate(outcome: Tensor) -> PassRate:
    """Count what passed among the scored outcomes [N]."""
    scored = outcome[~outcome.isnan()]
    return PassRate(passed=int((scored >= PASS).sum()), scored=int(scored.numel()))


def ledger_figures(ledger: Ledger) -> Figures:
    """What a batch tells before the update. None = undefined on this batch."""
    rollouts, votes = ledger.rollouts, ledger.rollouts.votes
    scored = rollouts.outcome[votes].double()
    lengths = rollouts.action_counts.double()
    used = ledger.advantage[ledger.mask].double()
    short, middle, long = torch.quantile(lengths, lengths.new_tensor([0.1, 0.5, 0.9])).tolist()
    return {
        "outcome_mean": _mean(scored),
        "pass_rate": _mean((scored >= PASS).double()),
        "pass_at_group": _share_of_groups(ledger, lambda own: bool((own >= PASS).any())),
        "zero_variance_groups": _share_of_groups(ledger, lambda own: bool(own.max() == own.min())),
        **{f"reward_{name}": _mean(part.sum(1)[votes].double()) for name, part in ledger.parts.items()},
        "process_outcome_correlation": _process_correlation(ledger),
        "mean_abs_advantage": _mean(used.abs()),
        "steps_per_rollout": _mean(ledger.steps.counts.double()),
        "length_p10": short,
        "length_p50": middle,
        "length_p90": long,
        "truncated": _mean((~rollouts.ended).double()),
        "unscored": _mean(rollouts.outcome.isnan().double()),
        **_of_rewards(ledger),
        **_of_lengths(ledger),
        **_of_turns(ledger),
    }


def _of_rewards(ledger: Ledger) -> Figures:
    """The extremes of an answer's reward, its spread in a group, and how far apart the steps of an answer are."""
    votes = ledger.rollouts.votes
    reward = ledger.reward.sum(1)[votes].double()
    groups = ledger.rollouts.groups[votes]
    spreads = [reward[groups == g].std(correction=0) for g in sorted(set(groups.tolist()))]
    return {
        "reward_lowest": float(reward.min()) if len(reward) else None,
        "reward_highest": float(reward.max()) if len(reward) else None,
        "reward_spread_in_group": float(torch.stack(spreads).mean()) if spreads else None,
        "value_spread": _spread_of_steps(ledger, ledger.value),
        "process_spread": _spread_of_steps(ledger, ledger.parts.get("process")),
    }


def _spread_of_steps(ledger: Ledger, grid: Tensor | None) -> float | None:
    """The mean distance of the highest from the lowest entry of an answer's steps, of answers with several."""
    several = ledger.rollouts.votes & (ledger.steps.counts > 1)
    if grid is None or not bool(several.any()):
        return None
    grid, mask = grid[several].double(), ledger.steps.mask[several]
    highest, lowest = torch.where(mask, grid, -torch.inf).amax(1), torch.where(mask, grid, torch.inf).amin(1)
    return float((highest - lowest).mean())


def _of_lengths(ledger: Ledger) -> Figures:
    """What an answer's length has to do with its reward and with passing, and a prompt's length with passing."""
    rollouts, votes = ledger.rollouts, ledger.rollouts.votes
    lengths, passed = rollouts.action_counts[votes].double(), (rollouts.outcome[votes] >= PASS).double()
    runs = rollouts.runs
    ahead = runs.take(runs.opens_rollout & ~runs.sampled)
    prompts = torch.zeros_like(rollouts.groups).index_add(0, ahead.rollout, ahead.length)[votes]
    long = prompts > prompts.median() if len(prompts) else prompts.bool()
    return {
        "length_reward_correlation": _correlation(lengths, ledger.reward.sum(1)[votes].double()),
        "length_pass_correlation": _correlation(lengths, passed),
        "pass_rate_short_prompts": _mean(passed[~long]) if bool(long.any()) else None,
        "pass_rate_long_prompts": _mean(passed[long]),
    }


def _of_turns(ledger: Ledger) -> Figures:
    """Turns with sampled tokens, and the share of tokens behind the prompt that the environment wrote."""
    rollouts, runs = ledger.rollouts, ledger.rollouts.runs
    behind = runs.take(~(runs.opens_rollout & ~runs.sampled))
    written = float(behind.length[~behind.sampled].sum())
    total = float(behind.length.sum())
    own = runs.of_actions
    return {
        "turns_per_rollout": float(own.opens_turn.sum()) / len(rollouts) if len(rollouts) else None,
        "environment_share": written / total if total else None,
    }


def _mean(entries: Tensor) -> float | None:
    return float(entries.mean()) if entries.numel() else None


def _share_of_groups(ledger: Ledger, test: Callable[[Tensor], bool]) -> float | None:
    rollouts, votes = ledger.rollouts, ledger.rollouts.votes
    own = [rollouts.outcome[votes & (rollouts.groups == g)] for g in sorted(set(rollouts.groups[votes].tolist()))]
    return sum(test(outcomes) for outcomes in own) / len(own) if own else None


def _process_correlation(ledger: Ledger) -> float | None:
    """Correlation of process and outcome reward over the rollouts that have both."""
    if "process" not in ledger.parts:
        return None
    votes = ledger.rollouts.votes
    process, outcome = (ledger.parts[name].sum(1)[votes].double() for name in ("process", "outcome"))
    return _correlation(process, outcome)


def _correlation(first: Tensor, second: Tensor) -> float | None:
    """Pearson's. None where one of them is all alike."""
    pair = torch.stack([first, second])
    if pair.shape[1] < 2 or bool((pair.std(dim=1) == 0).any()):
        return None
    return float(torch.corrcoef(pair)[0, 1])
