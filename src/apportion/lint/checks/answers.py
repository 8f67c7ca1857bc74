"""Credit of whole answers: groups are honest, and each answer has one number."""

from __future__ import annotations

import torch
from torch import Tensor

from apportion.lint import answer_faults
from apportion.lint.check import Case, Check, answer_columns, columns, of_answers, of_groups
from apportion.lint.finding import Finding, Place, broken, holds
from apportion.lint.runs import begins


def statistics(case: Case) -> Finding:
    """Broken where the advantages are not those of the rollouts' own groups under the recipe."""
    assert case.answers is not None
    found = case.answers.explanation
    if not found.found:
        recipe = case.batch.settings.recipe
        return broken(f"these are not the numbers of recipe {recipe}", place_of(case, found.off, found.expected))
    if found.fault is not None and found.fault.code == answer_faults.GROUPS:
        return broken("", place_of(case, found.off, found.expected), str(found.fault))
    reason = "" if found.fault is None else "wrong for another reason; "
    return holds(f"{reason}rewards less the recipe's baseline, {found.scaling}")


def undecided(case: Case) -> Finding:
    """Broken where rollouts have credit whose group holds equal rewards only, or nobody else."""
    assert case.answers is not None
    equal = case.answers.answers.undecided
    off = equal & (case.answers.advantage != 0)
    if not bool(off.any()):
        return holds(f"{int(equal.sum())} rollouts in groups where all rewards are equal, all exactly 0")
    fault = case.answers.explanation.fault
    return broken("", place_of(case, off, torch.zeros_like(case.answers.advantage)), str(fault or ""))


def unscored(case: Case) -> Finding:
    """Broken where a rollout that was not scored has credit."""
    batch = case.batch
    silent = batch.sampled & ~batch.of_tokens(batch.scored)
    off = silent & (batch.grids["advantages"] != 0)
    if bool(off.any()):
        return broken("the rollout was not scored", batch.first(off, "advantages", 0.0))
    return holds(f"{int((~batch.scored).sum())} rollouts not scored")


def even(case: Case) -> Finding:
    """Broken where the tokens of one answer have different advantages under a recipe that has one for all."""
    batch = case.batch
    advantages = batch.grids["advantages"]
    owner = batch.rollout_of[batch.counted]
    first = torch.zeros(len(batch), dtype=torch.float64)
    first = first.index_copy(0, owner[begins(owner)], advantages[batch.counted][begins(owner)])
    expected = batch.of_tokens(first)
    off = batch.counted & (advantages != expected)
    if bool(off.any()):
        return broken("one answer, several advantages", batch.first(off, "advantages", expected))
    return holds("one advantage an answer")


def place_of(case: Case, rollouts: Tensor, expected: Tensor) -> Place:
    """The first sampled token of the first of these rollouts, with the advantage that was expected."""
    batch = case.batch
    return batch.first(batch.counted & batch.of_tokens(rollouts), "advantages", batch.of_tokens(expected))


STATISTICS = Check(
    answer_faults.GROUPS,
    "an answer is compared with the scored answers of its own group",
    "Group by id, not by position; leave out what was not scored or has no sampled token; use the recipe you name.",
    answer_columns,
    statistics,
    of_groups,
)
UNDECIDED = Check(
    answer_faults.EQUAL,
    "where all answers of a group score alike, none has credit",
    "Give exactly 0 where the rewards of a group do not differ, one-member groups included, before you divide.",
    answer_columns,
    undecided,
    of_groups,
)
UNSCORED = Check(
    "unscored-credit",
    "a rollout that was not scored has no credit",
    "Give rollouts without a score advantage 0 and leave their tokens out of the loss: no score is not a score of 0.",
    columns("action_mask", "rewards", "advantages"),
    unscored,
)
EVEN = Check(
    "uneven-answer",
    "all tokens of an answer have its one advantage",
    "Spread the answer's advantage over its own action mask, row by row.",
    columns("action_mask", "advantages", "recipe"),
    even,
    of_answers,
)
