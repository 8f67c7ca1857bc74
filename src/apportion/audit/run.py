"""The call that the command is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.audit.chain import ANSWERS, from_chain
from apportion.audit.files import from_file, write_scored
from apportion.audit.judge import Audit, judge
from apportion.audit.subject import Subject
from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy

CHAIN = "chain"
CHAIN_METHODS = (
    *("grpo", "gae:1", "gae:0.95", "gae:0.5", "gae:0"),
    *("telescoping@mc:1", "telescoping@mc:2", "telescoping@mc:4", "telescoping@mc:8"),
    *("min_form@mc:4", "threshold@mc:4", "drop@mc:4", "argmin@mc:4", "random"),
    *("telescoping@exact", "min_form@noisy:0.2", "threshold@noisy:0.2", "drop@noisy:0.2", "argmin@noisy:0.2"),
)
"""Judged on the embedded task unless told."""
FILE_METHODS = (*("whole", "gae:0.95", "gae:0.5", "telescoping", "min_form", "threshold", "drop", "argmin", "random"),)
"""Judged on a file unless told; all but `random` start from its step scores."""


Progress = Callable[[str], None]


@dataclass(frozen=True)
class Data:
    """What methods are judged by: `chain`, the embedded task, or a file with human labels.

    policy: model that scores the steps of a file, by the likelihood of its reference answers or by continuations.
    scores: the field of a file's step scores. answers: at most so many of a file, or so many of the embedded task.
    """

    place: str | Path
    policy: str | Path | None = None
    scores: str | None = None
    answers: int | None = None
    seed: int = 0

    def subject(self, progress: Progress = lambda said: None, written: Path | None = None) -> Subject:
        """The answers to judge by. written: where those of a file go with how likely the policy finds their references.

        Raises InputError for what is not there, a bad row, or a setting without effect.
        """
        if self.answers is not None and self.answers < 1:
            raise InputError(f"an audit needs at least one answer, {self.answers} were asked for")
        if str(self.place) == CHAIN:
            for name, value in {"policy": self.policy, "scores": self.scores, "write-scores": written}.items():
                if value is not None:
                    raise InputError(f"{name} has no effect on the embedded task: its answers and scores are its own")
            return from_chain(answers=self.answers or ANSWERS, seed=self.seed, progress=progress)
        if written is not None and self.policy is None:
            raise InputError("write-scores writes what a policy says of the steps; give policy too")
        model = None if self.policy is None else CausalPolicy.load(self.policy)
        subject, rows = from_file(
            Path(self.place), model, scores=self.scores, most=self.answers, seed=self.seed, progress=progress
        )
        if written is not None:
            write_scored(written, rows, subject.scores("likelihood"), subject.steps)
        return subject


def audit(
    data: str | Path | Subject,
    methods: Sequence[str] | None = None,
    *,
    policy: str | Path | None = None,
    scores: str | None = None,
    answers: int | None = None,
    seed: int = 0,
) -> Audit:
    """Judge methods of credit on `chain`, the embedded task, or on a file with human labels; see `Data`.

    methods: by name (see `audit.methods`); the first is the one that the others are compared with.
    Raises InputError for what is not there, a bad row, or scores that a method needs and nobody gives.
    """
    subject = data if isinstance(data, Subject) else Data(data, policy, scores, answers, seed).subject()
    return judge(subject, methods or usual_methods(subject), seed=seed)


def usual_methods(subject: Subject) -> tuple[str, ...]:
    """Those that are judged unless told."""
    return CHAIN_METHODS if subject.name == CHAIN else FILE_METHODS
