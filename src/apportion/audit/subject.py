"""Answers of which it is known what each step changed, and the scores of their steps that methods start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError, did_you_mean
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.spot_check import Gap

NONE = -1
"""The key step of an answer that no step lost."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What somebody thinks an answer is worth before and after each of its steps; past its last step, 0.

    tokens: generated for it, over all answers.
    """

    before: Float[Tensor, "N K"]
    after: Float[Tensor, "N K"]
    tokens: int = 0

    @classmethod
    def around(cls, values: Float[Tensor, "N L"], counts: Int[Tensor, " N"], tokens: int = 0) -> Scores:
        """From values before each step and, one column more, after the last.

        >>> Scores.around(torch.tensor([[0.5, 1.0, 9.0], [0.5, 0.75, 0.0]]), torch.tensor([1, 2])).after
        tensor([[1.0000, 0.0000],
                [0.7500, 0.0000]])
        """
        there = torch.arange(values.shape[1] - 1, device=values.device) < counts.unsqueeze(1)
        return cls(torch.where(there, values[:, :-1], 0), torch.where(there, values[:, 1:], 0), tokens)

    @classmethod
    def before_steps(
        cls, values: Float[Tensor, "N K"], outcome: Float[Tensor, " N"], steps: StepMap, tokens: int = 0
    ) -> Scores:
        """From values before each step; after the last, an answer is worth its outcome."""
        wide = torch.cat([values, torch.zeros_like(values[:, :1])], dim=1)
        last = steps.counts.unsqueeze(1)
        return cls.around(wide.scatter(1, last, outcome.to(values.dtype).unsqueeze(1)), steps.counts, tokens)


Source = Callable[[str], Scores]
"""Scores from the argument of their name: the `6` of `mc:6`, empty where there is none."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Answers to judge methods by.

    truth: the credit of every step as it truly is. key: the step that lost the answer, `NONE` where none did.
    sources: by name; `usual` names the one that a method takes unless told, by method, "" for all others.
    knowing: sources that know the truth, and so are ceilings and no choice.
    reference: credit by many continuations of the answers' own policy, where there is one.
    gap: of scores from such continuations. about: what the answers and the truth are.
    """

    name: str
    about: str
    rollouts: Rollouts
    steps: StepMap
    truth: Float[Tensor, "N K"]
    key: Int[Tensor, " N"]
    sources: Mapping[str, Source]
    usual: Mapping[str, str]
    knowing: frozenset[str] = frozenset()
    reference: Callable[[], Float[Tensor, "N K"]] | None = None
    gap: Callable[[Scores], Gap | None] | None = None
    _known: dict[str, Scores] = field(default_factory=dict, repr=False)

    @property
    def mask(self) -> Bool[Tensor, "N K"]:
        return self.steps.mask

    @property
    def lost(self) -> Bool[Tensor, " N"]:
        """True for the answers that a step lost."""
        return self.key != NONE

    @property
    def outcome(self) -> Float[Tensor, " N"]:
        return self.rollouts.outcome

    def source_of(self, method: str) -> str:
        """The source that a method takes unless told. Raises InputError where this subject has none."""
        if not self.sources:
            raise InputError(
                f"{self.name}: {method} needs step scores, and there are none; give a file with a field of them "
                "(--scores FIELD), or a model that finds the reference answer likely or not (--policy FOLDER)"
            )
        return self.usual.get(method, self.usual[""])

    def scores(self, source: str) -> Scores:
        """Scores of a source such as `mc:6`, worked out once. Raises InputError for one that there is not."""
        name, _, argument = source.partition(":")
        if name not in self.sources:
            raise InputError(f"{self.name} has no step scores {name!r}{did_you_mean(name, self.sources)}")
        if source not in self._known:
            self._known[source] = self.sources[name](argument)
        return self._known[source]


def number(argument: str, name: str, usual: float) -> float:
    """The argument of a name, as a number. Raises InputError for what is none."""
    try:
        return float(argument) if argument else usual
    except ValueError:
        raise InputError(f"{name}:{argument}: {argument!r} is no number") from None
