"""Normalisation: credit on the step grid [N, K] in, the same shape out. Credit itself never normalises.

`mask` [N, K] is True at steps that count; all statistics are over those alone, in two passes (the mean first) in
float64, and every other entry comes out 0. `groups` [N] are dense indices. Standard deviations are of the sample
(divided by count - 1), as in `torch.std`. Where all credit that counts is equal, or spreads by at most `min_std`,
there is nothing to tell apart and the result is 0.

`across` says which processes share the batch (`apportion.across`); then the same index must mean the same group on all
of them.
"""

from apportion.normalise.batch import block_whiten, constant, mean_abs, whiten
from apportion.normalise.combine import Combine, Rescale, normalise_then_sum, sum_then_normalise
from apportion.normalise.groups import (
    Normalise,
    group_increment_std,
    group_mean_std,
    group_std,
    group_std_plus,
    leave_one_out,
    none,
)
from apportion.normalise.modulate import group_times_step, group_times_step_published
from apportion.normalise.running import RunningMoments

__all__ = [
    "BY_NAME",
    "COMBINE",
    "Combine",
    "Normalise",
    "Rescale",
    "RunningMoments",
    "block_whiten",
    "constant",
    "group_increment_std",
    "group_mean_std",
    "group_std",
    "group_std_plus",
    "group_times_step",
    "group_times_step_published",
    "leave_one_out",
    "mean_abs",
    "none",
    "normalise_then_sum",
    "sum_then_normalise",
    "whiten",
]

BY_NAME: dict[str, Normalise] = {
    "none": none,
    "group_std": group_std,
    "group_std_plus": group_std_plus,
    "group_mean_std": group_mean_std,
    "group_increment_std": group_increment_std,
    "leave_one_out": leave_one_out,
    "whiten": whiten,
    "mean_abs": mean_abs,
    "group_times_step": group_times_step,
    "group_times_step_published": group_times_step_published,
}
COMBINE: dict[str, Combine] = {
    "sum_then_normalise": sum_then_normalise,
    "normalise_then_sum": normalise_then_sum,
}
