"""How many answers each prompt gets out of one budget: more where the first ones failed."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.rollouts import Rollouts
from apportion.train.figures import PASS
from apportion.values import belief


def more_answers(rollouts: Rollouts, extra: int) -> list[int]:
    """Deal out `extra` answers to the groups, in proportion to how hard they look: 1 - what is believed of their rate.

    Of a group without a scored answer nothing is known: it counts as half hard. Sums to `extra`; what does not divide
    goes to the largest remainders, and among equals to the first.
    """
    passed = [0.0] * len(rollouts.group_names)
    scored = [0] * len(rollouts.group_names)
    for group, outcome in zip(rollouts.groups.tolist(), rollouts.outcome.tolist(), strict=True):
        if outcome == outcome:
            passed[group] += outcome >= PASS
            scored[group] += 1
    return _dealt(extra, [1 - belief.mean(hits, count) for hits, count in zip(passed, scored, strict=True)])


def _dealt(count: int, weights: Sequence[float]) -> list[int]:
    """So many in whole numbers, in proportion to the weights."""
    shares = [count * weight / sum(weights) for weight in weights]
    dealt = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda g: dealt[g] - shares[g])
    for g in order[: count - sum(dealt)]:
        dealt[g] += 1
    return dealt
