"""Rewards: each stands where it can be earned, each is accounted for, and none is moved in silence."""

from __future__ import annotations

import torch
from torch import Tensor

from apportion.lint import answer_faults, faults, names
from apportion.lint.batch import Batch
from apportion.lint.check import Case, Check, columns, credit_columns, of_credit, token_columns
from apportion.lint.checks.answers import place_of
from apportion.lint.checks.tokens import breaking
from apportion.lint.finding import Finding, broken, holds, not_checkable


def unsampled(case: Case) -> Finding:
    """Broken where a reward stands at a token that the policy did not sample, in a rollout where it did sample."""
    batch = case.batch
    rewards = batch.grids["rewards"].nan_to_num()
    beside = torch.where(batch.valid, batch.of_tokens(batch.has_actions), batch.sampled.any(1, keepdim=True))
    astray = ~batch.sampled & beside & (rewards != 0)
    if not bool(astray.any()):
        return holds(f"{int((batch.sampled & (rewards != 0)).sum())} rewards, all at sampled tokens")
    place = batch.first(astray, "rewards", 0.0)
    where = "in padding" if bool(batch.padding[place.row, place.position]) else "at a token that was not sampled"
    pattern = "a KL penalty is charged to tokens that were not sampled (as in slime)" if _is_kl(batch, astray) else ""
    return broken(f"{int(astray.sum())} of them, the first {where}; {_fate(case)}", place, pattern)


def lost(case: Case) -> Finding:
    """Broken where the credit is that of fewer rewards than came."""
    if case.answers is None:
        return breaking(faults.REWARD)(case)
    found = case.answers.explanation
    if found.fault is not None and found.fault.code == answer_faults.REWARD:
        return broken("", place_of(case, found.off, found.expected), str(found.fault))
    if not found.found:
        return not_checkable("the advantages are neither right nor those of a known fault: see group-statistics")
    return holds(
        "the advantages are those of the summed rewards" if found.fault is None else "wrong for another reason"
    )


def dense(case: Case) -> Finding:
    """Broken where rewards within an answer are summed to one number, so that where they stand is lost."""
    if case.answers is None:
        return breaking(faults.DENSE)(case)
    batch = case.batch
    within = batch.counted & ~batch.rollout_ends & (batch.grids["rewards"] != 0)
    if not bool(within.any()):
        return holds("no reward stands before an answer's last token")
    said = f"dense rewards are being summed to one scalar: {int(within.sum())} stand before an answer's last token"
    return broken(said, batch.first(within, "rewards", None))


def _fate(case: Case) -> str:
    """What became of rewards at tokens that were not sampled, as far as the numbers tell."""
    if of_credit(case.batch) or credit_columns(case.batch):
        return "most frameworks drop them"
    if case.answers is not None:
        found = case.answers.explanation
        counted, dropped = found.fault is not None and found.fault.code == faults.UNSAMPLED, found.fault is None
        known = found.found
    else:
        explained = [found for found in case.tokens.explanations if found.found]
        counted = any(faults.UNSAMPLED in found.broken_codes(case.batch) for found in explained)
        dropped, known = any(found.fault is None for found in explained), bool(explained)
    if known and counted:
        return "the credit counts them"
    return "no credit accounts for them: they are lost" if known and dropped else "the credit is wrong besides"


def _is_kl(batch: Batch, astray: Tensor) -> bool:
    """Are these rewards one negative multiple of the KL at their places?"""
    if "kl" not in batch.grids or int(astray.sum()) < 2:
        return False
    rewards, kl = batch.grids["rewards"][astray], batch.grids["kl"][astray]
    largest = float(rewards.abs().max())
    factor = rewards[0] / kl[0]
    allowed = batch.allowed_number("rewards", "kl", size=largest)
    return bool(factor < 0) and bool(((rewards - factor * kl).abs() <= allowed).all())


def _dense_columns(batch: Batch) -> tuple[str, ...]:
    if names.whole_answer_recipe(batch.settings.recipe) is not None:
        return batch.lacking("action_mask", "rewards")
    return token_columns(batch)


UNSAMPLED = Check(
    faults.UNSAMPLED,
    "rewards stand at sampled tokens",
    "Put the reward on the rollout's last sampled token, and charge KL to sampled tokens only.",
    columns("action_mask", "rewards"),
    unsampled,
)
LOST = Check(
    faults.REWARD,
    "no reward is lost",
    "Keep every token's reward up to the advantage: do not take the last entry for the score, and mask after the sum.",
    credit_columns,
    lost,
    of_credit,
)
DENSE = Check(
    faults.DENSE,
    "rewards within an answer keep their place",
    "Use a recipe with credit for tokens or steps (gae, to_go), or give one reward an answer if that is what you mean.",
    _dense_columns,
    dense,
    of_credit,
)
