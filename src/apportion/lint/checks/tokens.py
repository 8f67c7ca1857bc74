"""Credit of tokens: worked out anew, and where it differs, by which leak or loss. Each known fault breaks one rule."""

from __future__ import annotations

from collections.abc import Callable

from apportion.lint import faults
from apportion.lint.check import Case, Check, of_tokens, token_columns
from apportion.lint.explanation import Explanation
from apportion.lint.finding import Finding, Place, broken, holds, not_checkable

NOWHERE = {
    faults.GAP: "the batch has no tool gap",
    faults.SEGMENT: "no row holds several rollouts",
    faults.PADDING: "no padding follows a rollout",
}
"""What is said of a leak that the batch has nowhere to show."""
UNEXPLAINED = "the credit is neither right nor that of a known fault: see credit-differs"


def check(code: str, rule: str, remedy: str) -> Check:
    """The check of a rule that known faults of token credit break."""
    return Check(code, rule, remedy, token_columns, breaking(code), of_tokens)


def breaking(code: str) -> Callable[[Case], Finding]:
    """Broken where a column of credit holds the numbers of a fault with this code."""

    def run(case: Case) -> Finding:
        if code in NOWHERE and code.removesuffix("-leak") in case.batch.cannot_leak:
            return holds(NOWHERE[code])
        explained = [found for found in case.tokens.explanations if found.found]
        for found in explained:
            if code in found.broken_codes(case.batch):
                return _fault(case, found)
        return holds(_evidence(explained)) if explained else not_checkable(UNEXPLAINED)

    return run


def differing(case: Case) -> Finding:
    """Broken where credit is not explained at all, or by a fault that is no leak."""
    for found in case.tokens.explanations:
        if faults.DIFFERS in found.broken_codes(case.batch):
            return _fault(case, found)
    found = case.tokens.explanations[0]
    if found.found:
        return holds(_evidence([found]))
    returns = case.tokens.of("returns")
    right = returns is not None and returns.found and returns.fault is None
    return broken("the returns are right, they are not" if right else "no known fault gives them", _place(case, found))


def returning(case: Case) -> Finding:
    """Broken where returns are not explained although the advantages are."""
    returns, advantages = case.tokens.of("returns"), case.tokens.of("advantages")
    if returns is None or advantages is None:
        missing = "returns" if returns is None else "advantages"
        return not_checkable(f"missing: {missing}", (missing,))
    if returns.found:
        return holds(_evidence([returns]))
    if not advantages.found:
        return not_checkable(UNEXPLAINED)
    return broken("no known fault gives them", _place(case, returns))


def whitening(case: Case) -> Finding:
    """Broken where the statistics of the normalisation were taken over more than the sampled tokens."""
    found = case.tokens.of("advantages")
    if found is None:
        return not_checkable("missing: advantages", ("advantages",))
    if found.rescaling is None:
        return not_checkable(UNEXPLAINED)
    if not found.rescaling.is_honest:
        pattern = f"mean over {found.rescaling.mean_of}; spread over {found.rescaling.spread_of}"
        return broken("", _place(case, found), pattern)
    if found.rescaling.kind == "affine":
        return not_checkable(f"{found.rescaling}: not the statistics of this batch; give the whole batch they are of")
    return holds(f"advantages are {found.rescaling}")


def _fault(case: Case, found: Explanation) -> Finding:
    return broken("", _place(case, found), str(found.fault))


def _place(case: Case, found: Explanation) -> Place:
    return case.batch.first(found.off, found.column, found.expected)


def _evidence(explained: list[Explanation]) -> str:
    """How right the columns are, or that what is wrong with them is no matter of this rule."""
    said = [
        f"{found.column} within {found.largest:.1e}, {found.rescaling}"
        if found.fault is None
        else f"what is wrong with {found.column} is named elsewhere"
        for found in explained
    ]
    return "; ".join(said)


GAP = check(
    faults.GAP,
    "tool gaps are stepped over, without decay and without their values",
    "Work out credit on the sampled tokens alone: the next value is that of the rollout's next sampled token, and one "
    "gamma * lam is paid for each sampled token.",
)
SEGMENT = check(
    faults.SEGMENT,
    "nothing of one rollout reaches another in the same row",
    "Start anew at every segment: the value after a rollout's last token is 0 and no credit runs on.",
)
PADDING = check(
    faults.PADDING,
    "padding has no value",
    "Take the value after the last sampled token for 0, whatever the critic says in padding.",
)
END = check(
    faults.END,
    "a rollout that ended expects nothing more",
    "Bootstrap only rollouts that the sampler cut off, and give what was still expected of them as end_values.",
)
DIFFERS = Check(
    faults.DIFFERS,
    "advantages are those of the rewards and values that came",
    "Compare the first place: check gamma and lam, that values[t] is the state before token t, and what else is added.",
    token_columns,
    differing,
    of_tokens,
)
RETURNS = Check(
    "returns-differ",
    "returns are advantage before normalisation + value",
    "Add the values to the advantages before these are normalised.",
    token_columns,
    returning,
    of_tokens,
)
WHITENING = Check(
    "whitening-smeared",
    "normalisation takes its statistics from the sampled tokens",
    "Take mean and spread over the action mask alone, over all ranks, both with the same mask.",
    token_columns,
    whitening,
    of_tokens,
)
