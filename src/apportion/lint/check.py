"""A check: one rule that a batch keeps or breaks, what it needs to be looked at, and what to do when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from apportion.lint import names
from apportion.lint.answer_credit import AnswerCredit
from apportion.lint.batch import Batch
from apportion.lint.explanation import TokenCredit
from apportion.lint.finding import Finding, not_checkable
from apportion.values import baselines


@dataclass(frozen=True, eq=False)
class Case:
    """A batch, and what is worked out about it once for all checks."""

    batch: Batch

    @cached_property
    def tokens(self) -> TokenCredit:
        return TokenCredit(self.batch)

    @cached_property
    def answers(self) -> AnswerCredit | None:
        """None where the recipe does not give one number to a whole answer."""
        recipe = names.whole_answer_recipe(self.batch.settings.recipe)
        return None if recipe is None else AnswerCredit(self.batch, recipe)


Needs = Callable[[Batch], tuple[str, ...]]


@dataclass(frozen=True)
class Check:
    """A rule. code: names the fault; rule: what must hold; remedy: what to do, in a sentence.

    concerns: "" or the reason for which a batch's recipe has nothing to do with this rule.
    """

    code: str
    rule: str
    remedy: str
    needs: Needs
    run: Callable[[Case], Finding]
    concerns: Callable[[Batch], str] = lambda batch: ""

    @property
    def page(self) -> str:
        return f"docs/lint/{self.code}.md"

    def __call__(self, case: Case) -> Finding:
        reason = self.concerns(case.batch)
        missing = () if reason else self.needs(case.batch)
        if reason or missing:
            found = not_checkable(reason or "missing: " + ", ".join(missing), missing)
        else:
            found = self.run(case)
        return replace(found, code=self.code)


def columns(*wanted: str) -> Needs:
    """These columns; `a or b` needs one of the two."""
    return lambda batch: batch.lacking(*wanted)


def token_columns(batch: Batch) -> tuple[str, ...]:
    """What is needed to work out credit of tokens anew. Reward to go needs neither values nor lam."""
    critic = () if batch.settings.recipe == "to_go" else ("values", "lam")
    return batch.lacking("action_mask", "rewards", *critic, "gamma", "advantages or returns")


def answer_columns(batch: Batch) -> tuple[str, ...]:
    """What is needed to work out credit of whole answers anew. Without a baseline there are no groups."""
    recipe = names.whole_answer_recipe(batch.settings.recipe)
    groups = () if recipe is not None and recipe.value is baselines.zero else ("groups",)
    return batch.lacking("action_mask", "rewards", *groups, "recipe", "advantages")


def credit_columns(batch: Batch) -> tuple[str, ...]:
    """What is needed to work out credit anew, of whichever kind it is."""
    whole = names.whole_answer_recipe(batch.settings.recipe) is not None
    return answer_columns(batch) if whole else token_columns(batch)


def of_actions(batch: Batch) -> str:
    """Why a rule about sampled tokens does not concern a batch."""
    return "" if bool(batch.counted.any()) else "no rollout that was scored has a sampled token"


def of_tokens(batch: Batch) -> str:
    """Why a rule about credit of tokens does not concern a batch."""
    recipe = batch.settings.recipe
    if recipe in (None, "gae", "to_go"):
        return of_actions(batch)
    return f"recipe {recipe} does not give each token credit of its own"


def of_answers(batch: Batch) -> str:
    """Why a rule about credit of whole answers does not concern a batch."""
    recipe = batch.settings.recipe
    if recipe is None or names.whole_answer_recipe(recipe) is not None:
        return of_actions(batch)
    return f"recipe {recipe} does not give one number to a whole answer"


def of_groups(batch: Batch) -> str:
    """Why a rule about groups does not concern a batch."""
    recipe = names.whole_answer_recipe(batch.settings.recipe)
    alone = recipe is not None and recipe.value is baselines.zero
    return f"recipe {batch.settings.recipe} compares with nothing" if alone else of_answers(batch)


def of_credit(batch: Batch) -> str:
    """Why a rule about credit that is worked out anew does not concern a batch."""
    return of_tokens(batch) and of_answers(batch)
