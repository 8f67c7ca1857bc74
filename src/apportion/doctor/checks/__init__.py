"""The checks, by theme, and all of them in the order of causes: what comes first explains what comes later."""

from apportion.doctor.check import Check
from apportion.doctor.checks import critics, policy, rewards, signal, wiring

CHECKS: tuple[Check, ...] = (
    wiring.NOT_FINITE,
    wiring.TOOL_MASK,
    wiring.MISMATCH,
    rewards.UNBOUNDED,
    rewards.HACKED,
    rewards.DISAGREES,
    rewards.DEAD_PART,
    signal.TRUNCATED,
    signal.ALIKE,
    critics.CONSTANT,
    critics.WIDENS,
    critics.UNSEPARATED,
    policy.LEASHED,
    policy.CLIPPED,
    policy.COLLAPSED,
    rewards.LONGER,
    policy.UNLEARNS,
    signal.STABLE,
    signal.LONG_PROMPTS,
)
BY_CODE: dict[str, Check] = {check.code: check for check in CHECKS}

__all__ = ["BY_CODE", "CHECKS"]
