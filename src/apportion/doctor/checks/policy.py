"""The policy: whether it may move, moves too far at once, or has stopped to try things out."""

from __future__ import annotations

from statistics import median

from apportion.doctor import trend
from apportion.doctor.check import Check
from apportion.doctor.finding import Finding, Level
from apportion.doctor.history import History

STILL, LITTLE = 1e-3, 5e-3
"""KL a token under which a policy says the same as its starting model, or nearly so."""
LOW, VERY_LOW = 0.6, 0.3
"""Shares of the entropy at the start."""


def not_leashed(history: History) -> str:
    leashed = history.leashed
    if leashed is None:
        return "whether a KL holds the policy is not known: kl_beta was not logged"
    return "" if leashed else "no KL holds the policy (kl_beta is 0)"


def leashed(history: History) -> Finding | None:
    """A KL that stays at 0 or goes back there, in a run that does not improve."""
    kl = history.series("kl")
    back = trend.last(kl.values) < 0.1 * max(kl.values) and trend.fell(kl.values[len(kl.values) // 4 :], 0.0)
    held = trend.with_time(kl.values[len(kl.values) // 2 :]) < 0.3
    if history.improved or not (kl.last < STILL or (kl.last < LITTLE and held) or back):
        return None
    beta = history.series("kl_beta")
    weight = beta.last if beta.values else history.settings.get("kl_beta")
    success = history.success
    said = f"the KL to the starting model is {kl.last:.1e} a token"
    said += f" (at most {max(kl.values):.1e})" if back else (" and rises no more" if held else "")
    said += f" under a KL weight of {float(weight):g}" if weight is not None else ""
    if success.values:
        said += f", and {success.called} went from {success.first:.3g} to {success.last:.3g}"
    return Finding("error" if held or back else "warning", said, {"kl": kl.last}, kl.span(lambda entry: entry < LITTLE))


def clipped(history: History) -> Finding | None:
    """The share of tokens whose gradient the clip takes away."""
    share = history.series("clip_fraction")
    if share.last < 0.2:
        return None
    level: Level = "error" if share.last >= 0.3 and not history.improved else "warning"
    return Finding(
        level,
        f"the clip takes the gradient of {share.last:.0%} of tokens away",
        {"clip_fraction": share.last},
        share.span(lambda entry: entry >= 0.2),
    )


def collapsed(history: History) -> Finding | None:
    """Entropy against that of the starting model on the same answers, else against its own beginning."""
    against = history.series("entropy_share_of_reference")
    series = against if against.values else history.series("entropy")
    start = 1.0 if against.values else median(series.values[:3])
    if start <= 0:
        return None
    share = series.last / start
    if share >= LOW or not trend.fell(series.values, 0.0):
        return None
    level: Level = "warning" if history.improved or share >= VERY_LOW else "error"
    of = "the starting model's on the same answers" if against.values else "what it was at the start"
    success = history.success
    said = f"entropy is {share:.0%} of {of}"
    if success.values:
        said += f"; {success.called} went from {success.first:.3g} to {success.last:.3g}"
    return Finding(
        level, said, {"entropy_share": share}, series.span(lambda entry: entry < LOW * start), (series.called,)
    )


def unlearns(history: History) -> Finding | None:
    """Success goes down."""
    success = history.success
    known = history.has("pass_rate")
    drop = 0.05 if known else 0.5 * (max(success.values) - min(success.values))
    if not drop or not trend.fell(success.values, drop):
        return None
    kl, size = history.series("kl"), history.series("grad_norm")
    said = f"{success.called} fell from {success.first:.3g} to {success.last:.3g}"
    said += f"; the KL to the starting model went from {kl.first:.2g} to {kl.last:.2g}" if kl.values else ""
    said += f", the gradient's norm from {size.first:.2g} to {size.last:.2g}" if size.values else ""
    return Finding(
        "error" if known else "warning",
        said,
        {"success_change": trend.change(success.values)},
        (success.steps[0], success.steps[-1]),
        tuple(series.called for series in (success, kl, size) if series.called),
    )


LEASHED = Check(
    code="D12",
    name="kl-leash",
    rule="the policy may leave its starting model",
    looks=f"In a run with a KL in loss or reward that does not improve: whether the KL a token is under {STILL:g}, is "
    f"under {LITTLE:g} and has stopped to rise in the second half of the run, or falls back under a tenth of its"
    " highest. A warning where it is small and still rises.",
    why="Where the KL weighs more than the reward, the optimum is the starting model. Everything runs, nothing is "
    "learned; a KL that goes back to 0 says that the reward has lost.",
    remedy="Lower kl_beta (0.001 to 0.01 is usual, 0 is common), or raise the reward's scale or the learning rate; "
    "check that advantages are not next to 0.",
    needs=("kl",),
    log="the KL to the starting model a token, and its weight (TRL: kl; verl: actor/kl_loss, actor/kl_coef)",
    run=leashed,
    causes=("D08", "D07", "D01"),
    spared=not_leashed,
    fewest=20,
)
CLIPPED = Check(
    code="D13",
    name="clip-saturated",
    rule="most tokens keep their gradient",
    looks="The share of tokens whose ratio is clipped: a warning from 20 %, an error from 30 % in a run that does not"
    " improve.",
    why="A clipped token has no gradient. Where many are clipped, updates on a batch are too many or too large, or "
    "old log-probabilities are not those of the policy that sampled (D03).",
    remedy="Take fewer updates on a batch, a smaller learning rate, or a wider upper clip (clip_high 0.28); rule out "
    "D03.",
    needs=("clip_fraction",),
    log="the share of clipped tokens (TRL: clip_ratio/region_mean; verl: actor/pg_clipfrac)",
    run=clipped,
    causes=("D03", "D02", "D04"),
    fewest=4,
)
COLLAPSED = Check(
    code="D14",
    name="entropy-collapse",
    rule="the policy keeps trying things out",
    looks="Entropy a token as a share of the starting model's on the same answers, else of its own in the first "
    f"steps: a warning under {LOW:.0%}, an error under {VERY_LOW:.0%} in a run that does not improve.",
    why="A policy that says one thing only has no differences to learn from: groups become alike, and what it has not"
    " found by then it will not find. Fallen entropy is rarely won back.",
    remedy="Add an entropy bonus or raise clip_high, lower the learning rate, raise the temperature; keep a floor "
    "(`entropy_floor`) and go back to a checkpoint before the fall.",
    needs=("entropy or entropy_share_of_reference",),
    log="mean entropy a token (TRL: entropy; verl: actor/entropy)",
    run=collapsed,
    causes=("D02", "D03", "D04", "D05"),
)
UNLEARNS = Check(
    code="D19",
    name="unlearns",
    rule="success does not fall",
    looks="Whether the share that passes fell by 5 % of all or more (else the reward by half of its range), from the "
    "first third of the run to the last and by rank.",
    why="Whatever else is well, a run that ends worse than it began is wrong. Without another finding that explains "
    "it, steps are too large: the policy is thrown about by single batches and cannot come back.",
    remedy="Mend first what explains it, if anything here does; else lower the learning rate, take larger batches and"
    " fewer updates on each, and go back to a checkpoint from before the fall.",
    needs=("pass_rate or reward",),
    log="the share of answers that pass, or the mean reward",
    run=unlearns,
    causes=("D01", "D02", "D03", "D04", "D05", "D06", "D07", "D09", "D10", "D13", "D14", "D15"),
)
