"""Critics and other sources of values: whether they know anything."""

from __future__ import annotations

from statistics import median

from apportion.doctor import trend
from apportion.doctor.check import Check
from apportion.doctor.finding import Finding, Level
from apportion.doctor.history import History

ALIKE = 0.05
"""Values of the steps of an answer that lie within this of each other tell nothing apart, for scores of 0 to 1."""


def constant(history: History) -> Finding | None:
    """The critic against the best constant: by its error where that is known, else by the variance it explains."""
    error, explained = history.series("error_over_constant"), history.series("explained_variance")
    if error.values and error.last > 1.2:
        level: Level = "error" if error.last > 1.5 else "warning"
        grew = f" ({error.first:.1f} at first)" if error.last > error.first else ""
        return Finding(
            level,
            f"the critic's squared error is {error.last:.1f} times that of the best constant{grew}" + _still(history),
            {"error_over_constant": error.last},
            error.span(lambda entry: entry > 1.2),
            (error.called,),
        )
    if not explained.values or explained.last > 0.05:
        return None
    worse = explained.last < -0.2
    return Finding(
        "error" if worse and not history.improved else "warning",
        f"the critic explains {explained.last:.1%} of the variance of returns: "
        + ("worse than a constant" if explained.last < -0.05 else "no better than a constant"),
        {"explained_variance": explained.last},
        explained.span(lambda entry: entry <= 0.05),
        (explained.called,),
    )


def _still(history: History) -> str:
    norm, loss = history.series("critic_grad_norm"), history.series("critic_loss")
    if norm.values and norm.last == 0:
        return "; its gradient is 0"
    return "; its loss does not fall" if loss.values and not trend.fell(loss.values, 0.0) else ""


def widens(history: History) -> Finding | None:
    """The gap of values to Monte-Carlo estimates, late against its best."""
    gap = history.series("value_gap")
    late = median(gap.values[-max(2, len(gap.values) // 3) :])
    best = min(median(gap.values[i : i + 2]) for i in range(len(gap.values) - 1))
    if late < best + 0.08 or late < 1.4 * best or trend.with_time(gap.values) < 0.3:
        return None
    return Finding(
        "error" if late > best + 0.2 and not history.improved else "warning",
        f"values before steps are off from Monte-Carlo estimates by {late:.2f}, and were by {best:.2f} at best",
        {"value_gap": late, "at_best": best},
        gap.span(lambda entry: entry > best + 0.08),
    )


def unseparated(history: History) -> Finding | None:
    """How far apart the values, or process scores, of an answer's steps are."""
    grids = [history.series(name) for name in ("value_spread", "process_spread") if history.has(name)]
    widest = max(grids, key=lambda series: series.last)
    if widest.last >= ALIKE:
        return None
    passed = history.series("pass_rate")
    solved = bool(passed.values) and passed.last >= 0.9
    return Finding(
        "note" if solved or history.improved else "warning",
        f"values of the steps of an answer lie within {widest.last:.3f} on average: they tell nothing apart",
        {"spread": widest.last},
        widest.span(lambda entry: entry < ALIKE),
        tuple(series.called for series in grids),
    )


CONSTANT = Check(
    code="D09",
    name="critic-no-better",
    rule="a critic knows more than a constant",
    looks="The critic's squared error over that of the best constant (a warning over 1.2, an error over 1.5 in the "
    "last third of the run), else its explained variance (a warning up to 0.05, an error under -0.2 in a run "
    "that does not improve).",
    why="Advantages over values that are worse than a constant have more noise than plain REINFORCE has with a mean "
    "as its baseline, and a bias that stays. A critic that is no better costs a second model for nothing.",
    remedy="Check that the critic's optimiser steps and that its learning rate is not 0; warm it up "
    "(`critic_warmup`), raise its learning rate or updates a step, scale rewards to size 1, or take a recipe "
    "without a critic.",
    needs=("explained_variance or error_over_constant",),
    log="explained variance of returns (verl: critic/vf_explained_var), and error_over_constant (apportion does)",
    run=constant,
    causes=("D04", "D02", "D01"),
)
WIDENS = Check(
    code="D10",
    name="value-gap-widens",
    rule="values keep up with the policy",
    looks="The root mean square distance of values from Monte-Carlo estimates of the same states, in the last third "
    "of the checks against the best two in a row.",
    why="A critic or process model is right for the policy it was made with. As the policy moves on, its values "
    "become those of somebody else, and step credit rewards what used to be a good idea.",
    remedy="Train the critic along (more often, or with more updates), refresh the process model on new answers, or "
    "go back to Monte-Carlo values.",
    needs=("value_gap",),
    log="check_values_every in apportion: values against continuations of the same prefixes, now and then",
    run=widens,
    causes=("D09",),
    fewest=4,
)
UNSEPARATED = Check(
    code="D11",
    name="steps-alike",
    rule="steps of an answer are told apart",
    looks="The distance of the highest from the lowest value (or process score) in an answer of several steps: told "
    f"where its mean is under {ALIKE}. A note where the run learns all the same, or has solved its task.",
    why="Where all steps of an answer are worth the same, step credit is whole-answer credit with noise, at the price"
    " of a critic, a process model or many continuations.",
    remedy="Cut steps otherwise, take more continuations or another judge, or fall back to the whole answer "
    "(`min_spread`).",
    needs=("value_spread or process_spread",),
    log="value_spread and process_spread: highest less lowest value of the steps of an answer (apportion does)",
    run=unseparated,
    causes=("D09", "D08", "D14"),
    fewest=4,
)
