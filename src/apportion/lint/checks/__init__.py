"""The checks, by theme, and all of them in the order of the report: what hides other faults comes first."""

from apportion.lint.check import Check
from apportion.lint.checks import answers, layout, ratio, reduction, rewards, silence, tokens

CHECKS: tuple[Check, ...] = (
    layout.LAYOUT,
    layout.FINITE,
    rewards.UNSAMPLED,
    tokens.GAP,
    tokens.SEGMENT,
    tokens.PADDING,
    tokens.END,
    rewards.LOST,
    rewards.DENSE,
    tokens.DIFFERS,
    tokens.RETURNS,
    tokens.WHITENING,
    answers.STATISTICS,
    answers.UNDECIDED,
    answers.UNSCORED,
    answers.EVEN,
    silence.ENVIRONMENT,
    silence.PADDING,
    ratio.RATIO,
    ratio.COLLAPSE,
    reduction.REDUCTION,
)
BY_CODE: dict[str, Check] = {check.code: check for check in CHECKS}

__all__ = ["BY_CODE", "CHECKS"]
