"""Why the advantages of whole answers are what they are: the view of the answers, right or wrong, that gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.ledger import Recipe
from apportion.lint import answer_faults, tolerance
from apportion.lint.answer_faults import AnswerFault
from apportion.lint.answers import Answers, by_rollout, credit_of, right, scalings
from apportion.lint.batch import Batch
from apportion.lint.runs import begins


@dataclass(frozen=True, eq=False)
class AnswerExplanation:
    """What gives the advantages: fault None = the right view; scaling "" = nothing that is known.

    expected: what each rollout's advantage should be; off: rollouts where it is something else.
    """

    fault: AnswerFault | None
    scaling: str
    expected: Float[Tensor, " N"]
    off: Bool[Tensor, " N"]

    @property
    def found(self) -> bool:
        return self.scaling != ""


@dataclass(frozen=True, eq=False)
class AnswerCredit:
    """The advantages of the whole answers of a batch, explained once."""

    batch: Batch
    recipe: Recipe

    @cached_property
    def answers(self) -> Answers:
        return right(self.batch, self.recipe)

    @cached_property
    def advantage(self) -> Float[Tensor, " N"]:
        """The advantage of each rollout: that of its first counted token."""
        counted = self.batch.counted
        owner = self.batch.rollout_of[counted]
        first = begins(owner)
        blank = torch.zeros(len(self.batch), dtype=torch.float64)
        return blank.index_copy(0, owner[first], self.batch.grids["advantages"][counted][first])

    @cached_property
    def explanation(self) -> AnswerExplanation:
        """The first view that gives the advantages of all answers: the right one, or that of a known fault.

        Failing that, the right one without the answers of groups in which all rewards are equal: they must have
        exactly 0, which is a check of its own.
        """
        votes = self.answers.votes
        right: tuple[AnswerFault | None, Answers, Tensor] = (None, self.answers, votes)
        faults = ((fault, fault.change(self.answers), votes) for fault in self._possible())
        decided = (None, self.answers, votes & ~self.answers.undecided)
        for fault, answers, compared in chain([right], faults, [decided]):
            scaling = self._scaling(fault, answers, compared)
            if scaling:
                return self._explained(fault, scaling)
        return self._explained(None, "")

    def _possible(self) -> Iterator[AnswerFault]:
        return answer_faults.possible(self.batch, self.recipe.name)

    def _scaling(self, fault: AnswerFault | None, answers: Answers, compared: Tensor) -> str:
        """What the credit of a view is divided by to give the advantages of these rollouts; "" = nothing known."""
        credit = credit_of(answers)
        for scaling, divisor in self._divisors(fault, answers):
            if not bool((self._off(credit / divisor, divisor) & compared).any()):
                return scaling
        return ""

    def _divisors(self, fault: AnswerFault | None, answers: Answers) -> Iterator[tuple[str, Tensor]]:
        yield from scalings(answers)
        if fault is not None:
            yield "not scaled", torch.ones_like(answers.reward)

    def _off(self, expected: Tensor, divisor: Tensor) -> Tensor:
        largest, stored = float(self.advantage.abs().max()), self.batch.stored("rewards", "advantages")
        allowed = self._tolerance / divisor + tolerance.of_number(stored, largest)
        return (self.advantage - expected).abs() > allowed

    @cached_property
    def _tolerance(self) -> float:
        rewards = torch.where(self.batch.counted, self.batch.grids["rewards"], 0).abs()
        scale, terms = float(by_rollout(self.batch, rewards).max()), int(self.batch.counted.sum(1).max())
        return self.batch.allowed("rewards", "advantages", scale=scale, terms=terms)

    def _explained(self, fault: AnswerFault | None, scaling: str) -> AnswerExplanation:
        """With what should stand there, scaled as what stands there is where the recipe allows that."""
        options = dict(scalings(self.answers))
        divisor = options.get(scaling, next(iter(options.values())))
        expected = credit_of(self.answers) / divisor
        off = self._off(expected, divisor) & self.answers.votes
        return AnswerExplanation(fault, scaling, expected, off)
