"""Wiring: numbers that are none, tokens that nobody sampled, log-probabilities of another policy than the one asked."""

from __future__ import annotations

from apportion.doctor.check import Check
from apportion.doctor.finding import Finding
from apportion.doctor.history import History

APART = 0.03
FAR_APART = 0.1
"""Mean distance of two log-probabilities of a token; other number formats and kernels make some 0.01."""
SURPRISED = (0.75, 4 / 3)
"""What is sampled surprises its policy by its entropy on average; batches of thousands of tokens stray by 0.05."""


def not_finite(history: History) -> Finding | None:
    """Updates left out, or a loss, gradient, KL or reward that was no number."""
    watched = {part for name in ("loss", "grad_norm", "kl", "reward") for part in history.sources.get(name, ())}
    where = {name: steps for name, steps in history.not_finite.items() if name in watched}
    skipped = history.series("skipped_updates")
    steps = sorted(
        {step for found in where.values() for step in found}
        | {step for step, count in zip(skipped.steps, skipped.values, strict=True) if count}
    )
    if not steps:
        return None
    what = ", ".join(sorted(where)) or "loss or gradient"
    return Finding(
        "error" if len(steps) > 0.02 * len(history.steps) else "warning",
        f"{what} was no number at {len(steps)} of {len(history.steps)} steps",
        {"steps": float(len(steps)), "of": float(len(history.steps))},
        (steps[0], steps[-1]),
        (*sorted(where), *([skipped.called] if skipped.called and any(skipped.values) else [])),
    )


def one_turn(history: History) -> str:
    return "" if max(history.series("turns_per_rollout").values) > 1 else "every answer is a single turn"


def tool_mask(history: History) -> Finding | None:
    """Rollouts of several turns in which everything behind the prompt counts as sampled by the policy."""
    turns, share = history.series("turns_per_rollout"), history.series("environment_share")
    if turns.last <= 1 or share.last > 0:
        return None
    surprise = history.series("surprise_over_entropy")
    also = (
        f"; and what counts as sampled surprises the policy {surprise.last:.1f} times as much as samples do"
        if surprise.values and surprise.last > SURPRISED[1]
        else ""
    )
    return Finding(
        "error",
        f"rollouts have {turns.last:.1f} turns, and no token between them counts as the environment's{also}",
        {"turns_per_rollout": turns.last, "environment_share": share.last},
        share.span(lambda entry: entry == 0),
    )


def mismatch(history: History) -> Finding | None:
    """Sampler and trainer disagree on what tokens were worth, or the trainer is surprised by its own samples."""
    apart, surprise = history.series("mismatch_mean"), history.series("surprise_over_entropy")
    cut = float(history.settings.get("top_p", 1.0)) < 1  # what is cut off makes samples less surprising
    low = 0.0 if cut else SURPRISED[0]
    odd = bool(surprise.values) and not low <= surprise.last <= SURPRISED[1]
    slightly = bool(surprise.values) and not (0.0 if cut else 0.9) <= surprise.last <= 1.1
    far = apart.last if apart.values else 0.0
    if not odd and far <= APART:
        return None
    figures = {"mismatch_mean": far} if apart.values else {}
    said = (
        [f"sampler's and trainer's log-probabilities of a token are {far:.3f} apart on average"] if far > APART else []
    )
    if surprise.values and (odd or slightly):
        figures["surprise_over_entropy"] = surprise.last
        side = "more" if surprise.last > 1 else "less"
        said.append(
            f"what was sampled is {side} surprising to the trainer than what it would sample itself "
            f"({surprise.last:.2f} times its entropy; 1 is right)"
        )
    sure = odd or far > FAR_APART or slightly
    series = apart if far > APART else surprise
    span = apart.span(lambda entry: entry > APART) if far > APART else surprise.span(lambda entry: abs(entry - 1) > 0.1)
    called = tuple(s.called for s in ((series,) if not (odd or slightly) else (apart, surprise)) if s.called)
    return Finding("error" if sure else "warning", "; ".join(said), figures, span, called)


NOT_FINITE = Check(
    code="D01",
    name="not-finite",
    rule="every loss, gradient and reward is a number",
    looks="Counts steps whose loss, gradient norm, KL or reward is NaN or infinite, and updates that were left out "
    "for it.",
    why="One update by a gradient that is no number ends a run: every weight is NaN from then on. Where such updates "
    "are left out, whatever makes them (a ratio that overflows, a mean over nothing, a log of 0) still costs "
    "those batches.",
    remedy="Find the first such step and look at its batch: empty answers, all tokens masked, or a log-probability of"
    " -inf; then lower the learning rate or the reward's scale, or clip the log-ratio.",
    needs=("loss or grad_norm or skipped_updates",),
    log="loss and grad_norm of every step (TRL, verl and apportion do)",
    run=not_finite,
    causes=("D04",),
    fewest=0,
)
TOOL_MASK = Check(
    code="D02",
    name="tool-mask-missing",
    rule="tokens of tools and environment are told apart from sampled ones",
    looks="In rollouts of several turns, the share of tokens behind the prompt that were not sampled by the policy. 0"
    " = the mask is missing.",
    why="The policy is trained to write the tool's words itself, with the credit of the answer on them, and ratios, "
    "KL and entropy are worked out over tokens that it never chose. Answers come to hold invented tool results.",
    remedy="Set action_mask False on every token that the policy did not sample; `apportion lint` proves it on a "
    "batch.",
    needs=("turns_per_rollout", "environment_share"),
    log="turns_per_rollout and environment_share (apportion does); the share of response tokens whose mask is 0",
    run=tool_mask,
    spared=one_turn,
    fewest=1,
)
MISMATCH = Check(
    code="D03",
    name="logprob-mismatch",
    rule="sampler and trainer give a token the same log-probability",
    looks="The mean distance of the sampler's log-probability of a token from the trainer's before its first update, "
    f"a warning over {APART} and an error over {FAR_APART}; and how surprising samples are to the trainer, in "
    "units of its entropy, which is 1 on average if it is the policy that sampled (an error outside 3/4 to "
    "4/3).",
    why="The policy gradient holds for samples of the policy itself. Another temperature, a cut to top_p that one "
    "side does not know of, stale weights or another number format make it the gradient of something else: ratios"
    " that are not 1 at the start, clipping at random, and at last collapse.",
    remedy="Divide logits by the sampling temperature in the trainer too, load the newest weights into the sampler, "
    "and keep both in one number format; correct what is left by importance weights of tokens.",
    needs=("mismatch_mean or surprise_over_entropy",),
    log="TRL: sampling/sampling_logp_difference (with vLLM); verl: training/rollout_probs_diff_mean "
    "(rollout.calculate_log_probs=True)",
    run=mismatch,
    causes=("D02",),
    fewest=4,
)
