"""What saved ledgers tell that metrics did not, worked out from their rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from apportion.doctor.trend import pearson
from apportion.files import read_rows

PASS = 1.0
NAMES = (
    *("reward_lowest", "reward_highest", "reward_spread_in_group", "value_spread", "process_spread"),
    *("length_reward_correlation", "length_pass_correlation", "turns_per_rollout", "environment_share"),
)


def figures(folder: Path, known: Collection[str]) -> Iterator[tuple[int, dict[str, float]]]:
    """For each saved ledger the step and figures of it that are not known already."""
    if set(NAMES) <= set(known):
        return
    for path in sorted(folder.glob("step-*.jsonl")):
        number = re.fullmatch(r"step-(\d+)", path.stem)
        if number:
            found = _figures([row for _, row in read_rows(path)])
            yield int(number[1]), {name: entry for name, entry in found.items() if name not in known}


def _figures(rows: list[dict[str, Any]]) -> dict[str, float]:
    rows = [row for row in rows if row.get("outcome") is not None and isinstance(row.get("ledger"), dict)]
    rewards = [sum(row["ledger"]["reward"]) for row in rows]
    if not rows:
        return {}
    lengths = [float(sum(row["action_mask"])) for row in rows]
    found = {
        "reward_lowest": min(rewards),
        "reward_highest": max(rewards),
        "reward_spread_in_group": _spread_in_groups(rows, rewards),
        "turns_per_rollout": fmean(len(_turns(row)) for row in rows),
        "environment_share": 1 - sum(lengths) / sum(len(row["action_mask"]) for row in rows),
    }
    if len(set(lengths)) > 1:
        passed = [float(row["outcome"] >= PASS) for row in rows]
        if len(set(rewards)) > 1:
            found["length_reward_correlation"] = pearson(lengths, rewards)
        if len(set(passed)) > 1:
            found["length_pass_correlation"] = pearson(lengths, passed)
    several = [row["ledger"] for row in rows if len(row["ledger"]["reward"]) > 1]
    if several:
        found["value_spread"] = fmean(max(ledger["value"]) - min(ledger["value"]) for ledger in several)
        scored = [ledger["parts"]["process"] for ledger in several if "process" in ledger["parts"]]
        if scored:
            found["process_spread"] = fmean(max(steps) - min(steps) for steps in scored)
    return found


def _spread_in_groups(rows: list[dict[str, Any]], rewards: list[float]) -> float:
    groups = defaultdict(list)
    for row, reward in zip(rows, rewards, strict=True):
        groups[row["group"]].append(reward)
    return fmean(pstdev(own) for own in groups.values())


def _turns(row: dict[str, Any]) -> set[int]:
    """The turns that have sampled tokens."""
    if "turns" not in row:
        return {1}
    behind = row["turns"][len(row["turns"]) - len(row["action_mask"]) :]
    return {turn for turn, sampled in zip(behind, row["action_mask"], strict=True) if sampled}
