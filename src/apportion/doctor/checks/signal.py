"""Signal: whether a batch has anything to learn from."""

from __future__ import annotations

from apportion.doctor import trend
from apportion.doctor.check import Check
from apportion.doctor.finding import Finding, Level
from apportion.doctor.history import History

SOLVED = 0.8
NOISE = 1e-3
"""Spread of a group's rewards, in units of their size, under which it is rounding or chance."""


def truncated(history: History) -> Finding | None:
    """The share of answers that were cut off at the limit."""
    cut = history.series("truncated")
    if cut.last < 0.25:
        return None
    most = cut.last >= 0.5
    level: Level = "error" if most and not history.improved else "warning"
    said = f"{cut.last:.0%} of answers are cut off at the limit"
    said += f", {cut.first:.0%} at first" if abs(cut.last - cut.first) > 0.05 else ""
    return Finding(level, said, {"truncated": cut.last, "at_first": cut.first}, cut.span(lambda entry: entry >= 0.25))


def alike(history: History) -> Finding | None:
    """Groups whose answers all score alike, or differ by next to nothing."""
    spread, alike = history.series("reward_spread_in_group"), history.series("zero_variance")
    sizes = [abs(v) for name in ("reward_highest", "reward") for v in history.series(name).values]
    scale = max(trend.last(sizes) if sizes else 1.0, 1e-12)
    share = alike.last if alike.values else 0.0
    if spread.values and spread.last < NOISE * scale and share < 0.9:
        return Finding(
            "error",
            f"the rewards of a group differ by {spread.last:.2g} (standard deviation), for rewards of {scale:.2g}; "
            "scaled by that, chance is made as loud as a real difference",
            {"spread": spread.last, "reward": scale},
            spread.span(lambda entry: entry < NOISE * scale),
            (spread.called,),
        )
    if share < 0.5:
        return None
    passed = history.series("pass_rate")
    solved = bool(passed.values) and passed.last >= SOLVED
    level: Level = "note" if solved else ("error" if share >= 0.8 and not history.improved else "warning")
    said = f"in {share:.0%} of groups all answers score alike"
    said += f"; {passed.last:.0%} of answers pass, so most prompts are solved" if solved else ""
    return Finding(level, said, {"zero_variance": share}, alike.span(lambda entry: entry >= 0.5), (alike.called,))


def stable(history: History) -> Finding | None:
    """No credit left while the loss falls."""
    size, loss = history.series("mean_abs_advantage"), history.series("loss")
    down = len(loss.values) >= trend.FEWEST and trend.with_time(loss.values) < -0.4
    if size.last >= 0.01 or not down or trend.change(loss.values) >= 0:
        return None
    passed = history.series("pass_rate")
    solved = bool(passed.values) and passed.last >= SOLVED
    return Finding(
        "note" if solved else ("warning" if history.improved else "error"),
        f"advantages are {size.last:.2g} in size while the loss falls from {loss.first:.3g} to {loss.last:.3g}",
        {"mean_abs_advantage": size.last, "loss_change": trend.change(loss.values)},
        size.span(lambda entry: entry < 0.01),
    )


def long_prompts(history: History) -> Finding | None:
    """The gain on long prompts against that on short ones."""
    short, long = history.series("pass_rate_short_prompts"), history.series("pass_rate_long_prompts")
    gains = trend.change(short.values), trend.change(long.values)
    if not trend.rose(short.values, 0.1) or gains[0] - gains[1] < 0.15:
        return None
    return Finding(
        "warning",
        f"passing rose by {gains[0]:.0%} of all on the shorter half of prompts and by {gains[1]:.0%} on the longer",
        {"short": gains[0], "long": gains[1]},
        (long.steps[0], long.steps[-1]),
    )


TRUNCATED = Check(
    code="D07",
    name="truncation-starved",
    rule="answers end by themselves",
    looks="The share of answers that were cut off: a warning from 25 %, an error from 50 % in a run that does not "
    "improve.",
    why="An answer that is cut off before its result is scored as wrong however well it went, so that the signal is "
    "about length and not about the task; where all are cut off, no answer is right and no group has anything to "
    "compare. Once answers that end are rare, ending is never learned.",
    remedy="Raise the limit on new tokens, shorten prompts or begin with a model that ends; bootstrap cut answers or "
    "leave them unscored instead of failing them, and punish length softly before the limit "
    "(`rewards.length.soft_overlong`).",
    needs=("truncated",),
    log="the share of answers cut off (TRL: completions/clipped_ratio; verl: response_length/clip_ratio)",
    run=truncated,
    causes=("D05",),
    fewest=4,
)
ALIKE = Check(
    code="D08",
    name="groups-alike",
    rule="answers of a group score differently",
    looks="The share of groups whose answers all score alike: a warning from 50 %, an error from 80 % in a run that "
    "does not improve, a note where most prompts are solved. And whether scores differ by under a thousandth of"
    " their size.",
    why="A group that is all alike has no credit: its tokens were sampled for nothing. One whose scores differ by a "
    "hair has as much credit as any other once it is scaled by the group's spread, and all of that is chance.",
    remedy="Choose prompts that are sometimes solved, raise temperature or group size, make the judge tell more "
    "apart; leave out groups that differ by nothing real, or do not scale by the group's spread (dr_grpo).",
    needs=("zero_variance or reward_spread_in_group",),
    log="the share of groups without variance (TRL: frac_reward_zero_std) and the spread in a group (TRL: reward_std)",
    run=alike,
    causes=("D07", "D14", "D04", "D19"),
    fewest=4,
)
STABLE = Check(
    code="D16",
    name="false-stability",
    rule="a loss that falls is falling for some credit",
    looks="Whether the mean size of an advantage is under 0.01 in the last third of the run while the loss falls.",
    why="The loss of policy gradients says nothing about success. Where advantages are gone, what falls is the KL or "
    "the entropy term: the run looks stable because nothing is being learned.",
    remedy="Look at the groups (D08) and at how credit is scaled; stop, or choose harder prompts.",
    needs=("mean_abs_advantage", "loss"),
    log="the mean of |advantage| over sampled tokens (apportion does; others log the signed mean, which is 0)",
    run=stable,
    causes=("D08", "D07", "D11", "D09"),
)
LONG_PROMPTS = Check(
    code="D17",
    name="long-prompts-lag",
    rule="long prompts gain as short ones do",
    looks="The gain in passing from the first third of the run to the last on the shorter half of prompts, against "
    "the longer half: told where it is 15 points more.",
    why="Long prompts leave less room for an answer, are cut off first, and where tokens are weighed by answer weigh "
    "little. The mean hides that they stay behind.",
    remedy="Raise the limit on tokens, weigh by token (token_mean), and draw long prompts more often.",
    needs=("pass_rate_short_prompts", "pass_rate_long_prompts"),
    log="the share that passes for the shorter and for the longer half of the prompts (apportion does)",
    run=long_prompts,
    causes=("D07",),
)
