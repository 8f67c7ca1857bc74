"""Methods of credit by name: `FORMULA[:NUMBER][@SCORES]`, as `gae:0.95@critic`, `telescoping@mc:4` or `grpo`.

| formula               | credit                                                                                |
|-----------------------|---------------------------------------------------------------------------------------|
| grpo, rloo, ...       | the recipe of that name, for whole answers: one number for all steps of an answer       |
| whole                 | outcome less the score before the first step, for all steps                            |
| telescoping           | what each step changed the score by; after the last it is the outcome                   |
| gae:LAM (0.95)        | the same of this step and, by lam, of later ones; the unit is a step                    |
| to_go                 | outcome less the score before the step                                                 |
| min_form:T (0.1)      | the sum to go of step rewards weighed towards the lowest (PURE)                         |
| drop                  | -1 at the step where the score falls most                                              |
| threshold:LEAST (0.5) | -1 at the first step whose score is under LEAST; nothing where none is                  |
| argmin                | -1 at the first step of the lowest score                                               |
| random                | each step its own share of blame, by lot                                               |

The last four name a step and say no more. `drop`, `threshold` and `argmin` are asked about lost answers alone: whether
an answer is right everybody is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from apportion import credit, laws, normalise, recipes
from apportion.audit.subject import Scores, Subject, number
from apportion.errors import InputError, did_you_mean
from apportion.ledger import Recipe, apportion
from apportion.rewards.process import min_form
from apportion.steps import spread
from apportion.steps.splitters import whole

Grid = Float[Tensor, "N K"]
SEED = 0

WHOLE = ("grpo", "dr_grpo", "rloo", "reinforce", "reinforce_plus_plus")
"""Recipes that credit an answer as a whole, and need no scores for it."""


@dataclass(frozen=True, eq=False)
class Credited:
    """What a method says of the steps.

    credit: for every step. residual: of every answer, by how much credit misses outcome less starting value.
    tokens: generated for it. knows: its scores know the truth.
    """

    credit: Grid
    residual: Float[Tensor, " N"]
    tokens: int
    source: str | None
    knows: bool


Formula = Callable[[Subject, Scores, str], Grid]


def credited(subject: Subject, name: str) -> Credited:
    """Work out the credit of a method. Raises InputError for a name that is none, or scores that there are not."""
    method, _, source = name.partition("@")
    formula, _, argument = method.partition(":")
    if formula in WHOLE or formula == "random":
        if source or argument:
            raise InputError(f"{name}: {formula} takes neither a number nor scores; say just {formula}")
        return _by_recipe(subject, formula) if formula in WHOLE else _by_lot(subject)
    if formula not in FORMULAS:
        known = [*WHOLE, *FORMULAS, "random"]
        raise InputError(f"there is no method {formula!r}{did_you_mean(formula, known)}")
    source = source or subject.source_of(formula)
    scores = subject.scores(source)
    found = torch.where(subject.mask, FORMULAS[formula](subject, scores, argument), 0)
    knows = source.partition(":")[0] in subject.knowing
    return Credited(found, _missed(subject, found, scores.before[:, 0]), scores.tokens, source, knows)


def _by_recipe(subject: Subject, name: str) -> Credited:
    ledger = apportion(subject.rollouts, recipes.by_name(name))
    missed = laws.conservation(ledger.credit, subject.outcome.unsqueeze(1), ledger.value[:, 0])
    return Credited(subject.steps.first(ledger.advantage), missed, 0, None, False)


def _by_lot(subject: Subject) -> Credited:
    generator = torch.Generator().manual_seed(SEED)
    drawn = -torch.rand(subject.mask.shape, generator=generator, dtype=torch.float64)
    drawn = torch.where(subject.mask, drawn, 0)
    return Credited(drawn, _missed(subject, drawn, torch.zeros_like(subject.outcome)), 0, None, False)


def _missed(subject: Subject, found: Grid, start: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    return laws.conservation(found, subject.outcome.unsqueeze(1), start)


def _on_line(subject: Subject, scores: Scores, estimator: credit.Credit) -> Grid:
    """Down the straight line, with these scores as values."""
    recipe = Recipe(
        name="audited",
        split=lambda _: subject.steps,
        value=lambda _, __, ___: scores.before,
        credit=estimator,
        normalise=normalise.none,
        spread=spread.repeat,
    )
    return apportion(subject.rollouts, recipe).credit


def _whole(subject: Subject, scores: Scores, argument: str) -> Grid:
    _refuse(argument, "whole")
    recipe = Recipe(
        name="audited",
        split=whole,
        value=lambda _, __, ___: scores.before[:, :1],
        credit=credit.telescoping,
        normalise=normalise.none,
        spread=spread.repeat,
    )
    return subject.steps.first(apportion(subject.rollouts, recipe).advantage)


def _telescoping(subject: Subject, scores: Scores, argument: str) -> Grid:
    _refuse(argument, "telescoping")
    return _on_line(subject, scores, credit.telescoping)


def _gae(subject: Subject, scores: Scores, argument: str) -> Grid:
    lam = number(argument, "gae", 0.95)
    if not 0 <= lam <= 1:
        raise InputError(f"gae:{argument}: lam lies between 0 and 1")
    return _on_line(subject, scores, credit.gae_with(gamma=1.0, lam=lam))


def _to_go(subject: Subject, scores: Scores, argument: str) -> Grid:
    _refuse(argument, "to_go")
    return _on_line(subject, scores, credit.to_go)


def _min_form(subject: Subject, scores: Scores, argument: str) -> Grid:
    """Of rewards from -1 to 1, as PURE has them."""
    rewards = min_form(2 * scores.after - 1, subject.mask, temperature=number(argument, "min_form", 0.1))
    return credit.to_go(rewards, torch.zeros_like(rewards))


def _drop(subject: Subject, scores: Scores, argument: str) -> Grid:
    _refuse(argument, "drop")
    return _named(subject, _lowest(subject, scores.after - scores.before))


def _threshold(subject: Subject, scores: Scores, argument: str) -> Grid:
    under = (scores.after < number(argument, "threshold", 0.5)) & subject.mask
    first = torch.where(under.any(1), under.long().argmax(1), -1)
    return _named(subject, first)


def _argmin(subject: Subject, scores: Scores, argument: str) -> Grid:
    _refuse(argument, "argmin")
    return _named(subject, _lowest(subject, scores.after))


def _lowest(subject: Subject, scores: Grid) -> Tensor:
    return torch.where(subject.mask, scores, torch.inf).argmin(1)


def _named(subject: Subject, step: Tensor) -> Grid:
    """-1 at one step of every lost answer; at none where it is -1."""
    lost = (subject.outcome < 1) & (step >= 0)
    here = torch.arange(subject.mask.shape[1]) == step.unsqueeze(1)
    return -(here & lost.unsqueeze(1)).double()


def _refuse(argument: str, name: str) -> None:
    if argument:
        raise InputError(f"{name} takes no number, {argument!r} came")


FORMULAS: dict[str, Formula] = {
    "whole": _whole,
    "telescoping": _telescoping,
    "gae": _gae,
    "to_go": _to_go,
    "min_form": _min_form,
    "drop": _drop,
    "threshold": _threshold,
    "argmin": _argmin,
}
