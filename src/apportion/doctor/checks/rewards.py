"""Rewards: their range, what they pay for beside being right, and whether process and outcome agree."""

from __future__ import annotations

import re

from apportion.doctor import trend
from apportion.doctor.check import Check
from apportion.doctor.finding import Finding, Level
from apportion.doctor.history import History

LARGE = 10.0
HUGE = 50.0
"""Rewards; SPECs of trainers, learning rates and KL weights are for rewards within -1 and 1 or so."""
LONGER_BY = 0.1
"""Share by which length must rise to be told."""
WORSE_BY = 0.05
"""Share of answers."""
DEAD = re.compile(r"rewards/.+/std")
"""As TRL calls the spread of a part of the reward."""


def unbounded(history: History) -> Finding | None:
    """The largest reward of an answer, by size; where only mean and spread are known, three spreads from the mean."""
    extremes = [history.series(name) for name in ("reward_highest", "reward_lowest") if history.has(name)]
    if extremes:
        sizes = [max(abs(entry) for entry in row) for row in zip(*(s.values for s in extremes), strict=False)]
        steps, words, exact = extremes[0].steps[: len(sizes)], "rewards reach", True
    else:
        means, spreads = history.pair("reward", "reward_spread_in_group")
        sizes = [abs(mean) + 3 * spread for mean, spread in zip(means, spreads, strict=True)]
        steps, words, exact = history.series("reward").steps, "rewards (mean and three spreads) reach", False
    if not sizes:
        return None
    size, grew = trend.last(sizes), trend.last(sizes) / max(trend.first(sizes), 1e-9)
    runaway = trend.rose(sizes, 2 * trend.first(sizes)) and size > 3
    if size <= LARGE and not runaway:
        return None
    said = f"{words} {size:.3g} in size" + (f", {grew:.1f} times what they were at first" if runaway else "")
    sure = exact and (size >= HUGE or (runaway and size > LARGE))
    return Finding("error" if sure else "warning", said, {"reward": size, "growth": grew}, (steps[0], steps[-1]))


def hacked(history: History) -> Finding | None:
    """Length is paid for: reward goes with length where passing does not."""
    length, passed = history.series("length"), history.series("pass_rate")
    longer = trend.rose(length.values, LONGER_BY * max(length.first, 1e-9))
    worse = trend.fell(passed.values, WORSE_BY)
    paid, deserved = history.series("length_reward_correlation"), history.series("length_pass_correlation")
    figures = {"length_change": trend.change(length.values), "pass_rate_change": trend.change(passed.values)}
    said = [f"answers went from {length.first:.0f} to {length.last:.0f} tokens"] if longer else []
    said += [f"passing from {passed.first:.0%} to {passed.last:.0%}"] if longer else []
    by_answer = bool(paid.values) and paid.last > 0.5 and paid.last - (deserved.last if deserved.values else 0) > 0.3
    if by_answer:
        figures["length_reward_correlation"] = paid.last
        said.append(
            f"within a batch reward and length correlate by {paid.last:.2f}, passing and length by "
            + (f"{deserved.last:.2f}" if deserved.values else "nothing")
        )
    payer = history.series("process" if history.has("process") else "reward")
    own = payer.called != passed.called
    scores, lengths = history.pair("process" if history.has("process") else "reward", "length")
    with_length = own and longer and trend.rose(scores, 1e-9) and trend.spearman(scores, lengths) > 0.5
    if with_length:
        figures["reward_change"] = trend.change(scores)
        said.append(f"and {payer.called} rose with length from {payer.first:.3g} to {payer.last:.3g}")
    if not by_answer and not (with_length and worse):
        return None
    sure = longer and (worse or (by_answer and not trend.rose(passed.values, WORSE_BY)))
    return Finding("error" if sure else "warning", "; ".join(said), figures, (length.steps[0], length.steps[-1]))


def disagrees(history: History) -> Finding | None:
    """The correlation of an answer's process score with its outcome."""
    found = history.series("process_outcome_correlation")
    if found.last >= 0.5:
        return None
    weak = found.last < 0.3
    level: Level = "note" if not weak else ("warning" if history.improved else "error")
    return Finding(
        level,
        f"process and outcome reward of an answer correlate by {found.last:.2f} (0.5 or more is healthy)",
        {"correlation": found.last},
        found.span(lambda entry: entry < (0.3 if weak else 0.5)),
    )


def longer_and_worse(history: History) -> Finding | None:
    """Length up while passing goes down."""
    length, passed = history.series("length"), history.success
    if not trend.rose(length.values, LONGER_BY * max(length.first, 1e-9)):
        return None
    known = history.has("pass_rate")
    drop = WORSE_BY if known else 0.5 * (max(passed.values) - min(passed.values))
    if not trend.fell(passed.values, drop):
        return None
    return Finding(
        "error" if known else "warning",
        f"answers went from {length.first:.0f} to {length.last:.0f} tokens while {passed.called} fell from "
        f"{passed.first:.3g} to {passed.last:.3g}",
        {"length_change": trend.change(length.values), "success_change": trend.change(passed.values)},
        (length.steps[0], length.steps[-1]),
        (length.called, passed.called),
    )


def dead(history: History) -> Finding | None:
    """Parts of a reward that were the same for every answer of every step."""
    spreads = {name: history.columns[name] for name in history.columns if DEAD.fullmatch(name)}
    found = [name.removesuffix("/std") for name, column in spreads.items() if not any(column)]
    if not found:
        return None
    return Finding(
        "warning",
        f"{', '.join(sorted(found))} gave every answer of every step the same",
        {"parts": float(len(found)), "of": float(len(spreads))},
        (history.steps[0], history.steps[-1]),
        tuple(sorted(f"{name}/std" for name in found)),
    )


UNBOUNDED = Check(
    code="D04",
    name="reward-unbounded",
    rule="rewards stay within a range that is known beforehand",
    looks=f"The largest reward of an answer by size: a warning over {LARGE:g}, an error over {HUGE:g}, or where it "
    "grows threefold along the run.",
    why="Learning rate, KL weight, value loss and clipping are set for rewards of size 1. A hundredfold reward "
    "without scaling by the group is a hundredfold gradient, drowns the KL, and a few lucky answers decide the "
    "run; a reward without an upper end is an invitation to find out how high it goes.",
    remedy="Scale the reward and clip it to -1 to 1 (`rewards.shaping`), and give every part of it an upper end.",
    needs=("reward_highest or reward_lowest or reward",),
    log="the largest and smallest reward of a batch (verl: critic/score/max; apportion: reward_highest, reward_lowest)",
    run=unbounded,
    causes=("D05",),
    fewest=4,
)
HACKED = Check(
    code="D05",
    name="length-hacked",
    rule="nothing is paid for length that is not right",
    looks="Whether process score or reward rise with length over the run while fewer answers pass; and whether, "
    "within a batch, reward goes with length (over 0.5) where passing does not.",
    why="A process score that sums over steps, or a judge who likes long answers, is paid out by writing more. The "
    "policy finds that sooner than it finds the answer, and every curve but the one that counts looks well.",
    remedy="Average step scores instead of summing them, take the worst step (min-form), or charge for length "
    "(`rewards.length`); keep the share that passes in view.",
    needs=("length", "pass_rate", "process or length_reward_correlation or reward"),
    log="answer length, a share of right answers apart from the reward, and the correlation of length with reward",
    run=hacked,
)
DISAGREES = Check(
    code="D06",
    name="process-disagrees",
    rule="process and outcome reward agree",
    looks="The correlation, over the answers of a batch, of process score and outcome: under 0.3 it is told as a "
    "fault, under 0.5 as a note.",
    why="Where the two disagree, step credit pushes towards answers that look right to the process judge and fail. "
    "With more weight on the process, the outcome falls.",
    remedy="Look at answers with high process score and wrong outcome; then pull them down (`rewards.conflict`), "
    "weigh the outcome more, or train on the outcome alone until the judge is mended.",
    needs=("process_outcome_correlation",),
    log="the correlation of summed step reward with outcome in every batch (apportion does)",
    run=disagrees,
    causes=("D05",),
    fewest=4,
)
LONGER = Check(
    code="D15",
    name="longer-and-worse",
    rule="answers that grow longer do not grow worse",
    looks=f"Whether length rose by {LONGER_BY:.0%} or more while the share that passes fell by {WORSE_BY:.0%} of all "
    "or more, each from the first third of the run to the last and by rank.",
    why="Longer answers cost time, come nearer the limit, and are paid for nothing. It is the commonest sign that a "
    "loss weighs tokens so that wrong long answers are punished little, or that length itself is paid.",
    remedy="Look at the reduction of the loss (a mean in each answer favours long wrong ones: use token_mean or a "
    "fixed divisor), at what rewards pay for, and at the share cut off.",
    needs=("length", "pass_rate or reward"),
    log="mean answer length and the share that passes",
    run=longer_and_worse,
    causes=("D05", "D06", "D07", "D03"),
)
DEAD_PART = Check(
    code="D18",
    name="part-of-reward-dead",
    rule="every part of the reward tells answers apart",
    looks="Whether a part of the reward had a spread of 0 at every step.",
    why="A part that never varies moves nothing once it is compared within a group. Most often it is broken: it looks"
    " for a format that the answers do not have, swallows its errors, or is given the wrong column.",
    remedy="Call it by hand on a few answers that should differ; then mend it or take it out.",
    needs=("reward_parts",),
    log="mean and spread of every part of the reward (TRL: rewards/NAME/mean, rewards/NAME/std)",
    run=dead,
    fewest=5,
)
