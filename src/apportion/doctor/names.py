"""What the figures of a run are called here, and what others call them.

The first name of a row that a run has is taken. Names of others are those of TRL 1.16 and verl 0.9; a tracker's
`train/` before them is dropped. A row of patterns is tried after the names.
"""

from __future__ import annotations

import re
from collections.abc import Collection

STEP = ("step", "_step", "global_step", "train/global_step", "training/global_step", "Step")
OWN_NAMES = (
    *("loss", "grad_norm", "skipped_updates", "pass_rate", "truncated", "kl", "kl_beta", "entropy"),
    *("entropy_share_of_reference", "mismatch_mean", "mismatch_max", "surprise_over_entropy", "mean_abs_advantage"),
    *("explained_variance", "error_over_constant", "critic_loss", "critic_grad_norm", "value_gap", "value_spread"),
    *("process_spread", "process_outcome_correlation", "length_reward_correlation", "length_pass_correlation"),
    *("pass_rate_short_prompts", "pass_rate_long_prompts", "turns_per_rollout", "environment_share"),
    *("pass_at_group", "reward_lowest", "reward_highest", "reward_spread_in_group"),
)
OTHERS: dict[str, tuple[str, ...]] = {
    "loss": ("actor/pg_loss",),
    "grad_norm": ("actor/grad_norm",),
    "kl": ("actor/kl_loss", "critic/kl", "actor/reward_kl_penalty"),
    "kl_beta": ("actor/kl_coef", "actor/reward_kl_penalty_coeff", "beta"),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "truncated": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "mismatch_mean": (
        *("sampling/sampling_logp_difference/mean", "training/rollout_probs_diff_mean"),
        "rollout_corr/log_ppl_abs_diff",
    ),
    "mismatch_max": ("sampling/sampling_logp_difference/max", "training/rollout_probs_diff_max"),
    "explained_variance": ("critic/vf_explained_var",),
    "critic_loss": ("critic/vf_loss",),
    "critic_grad_norm": ("critic/grad_norm",),
    "reward": ("outcome_mean", "critic/score/mean", "critic/rewards/mean"),
    "reward_highest": ("critic/score/max",),
    "reward_lowest": ("critic/score/min",),
    "reward_spread_in_group": ("reward_std",),
    "zero_variance": ("zero_variance_groups", "frac_reward_zero_std"),
    "length": ("length_p50", "completions/mean_length", "completion_length", "response_length/mean"),
    "process": ("reward_process",),
    "turns_per_rollout": ("num_turns/mean",),
}
PATTERNS: dict[str, str] = {
    "reward_parts": r"rewards/.+/std$",
    "pass_rate": r"rewards/.*(accura|correct|solve|exact|math_verify|passed)[^/]*(?<!/std)(/mean)?$|"
    r"(val-core|val)/.*(acc|test_score|pass)[^/]*(/.*)?$",
    "process": r"rewards/.*(process|prm|step)[^/]*(/mean)?$",
}
SUMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "clip_fraction": (
        *(("clip_fraction_low", "clip_fraction_high"), ("clip_ratio/region_mean",), ("clip_ratio",)),
        *(("clip_ratio/low_mean", "clip_ratio/high_mean"), ("actor/pg_clipfrac", "actor/pg_clipfrac_lower")),
        ("actor/pg_clipfrac",),
    ),
}
"""Figures that are the sum of others."""
KNOWN = (*dict.fromkeys([*OWN_NAMES, *OTHERS, *PATTERNS, *SUMS]),)


def sources(names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each figure that a run has under some name: the names to add up."""
    found: dict[str, tuple[str, ...]] = {}
    for ours in KNOWN:
        candidates = SUMS.get(ours) or tuple((name,) for name in (ours, *OTHERS.get(ours, ())))
        parts = next((parts for parts in candidates if all(part in names for part in parts)), None)
        if parts is None and ours in PATTERNS:
            like = sorted(name for name in names if re.match(PATTERNS[ours], name))
            parts = tuple(like[:1]) or None
        if parts is not None:
            found[ours] = parts
    return found


def plain(name: str) -> str:
    """A name without what a tracker puts before all of them."""
    return name.removeprefix("train/") if name not in STEP else name
