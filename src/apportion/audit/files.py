"""A file with labels as answers to judge methods by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from apportion.audit.labelled import Labelled, read, sampled
from apportion.audit.sources import Answers, by_likelihood
from apportion.audit.subject import NONE, Scores, Source, Subject
from apportion.errors import InputError
from apportion.files import Row, write_rows
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.rewards.checkers import math_equal
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps.grid import StepMap, number_steps
from apportion.values.monte_carlo import prefixes_before_steps

LONGEST = 512
"""Tokens of a continuation of a labelled answer, as an answer as a whole."""


def from_file(
    path: Path,
    policy: CausalPolicy | None = None,
    *,
    scores: str | None = None,
    most: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda said: None,
) -> tuple[Subject, list[Row]]:
    """The answers of a file with labels (`labelled`), and the rows that they are of.

    policy: whose likelihood of the reference answer, or continuations, score steps. scores: the field of step scores,
    if not the first known one. most: answers, evenly spread over the file.
    """
    kind, answers, rows = read(path, scores)
    keep = sampled(answers, most)
    answers, rows = keep(answers), keep(rows)
    batch, steps = spelled(answers, policy)
    key = torch.tensor([answer.key for answer in answers])
    truth = torch.zeros(steps.mask.shape, dtype=torch.float64)
    lost = (key != NONE).nonzero().squeeze(1)
    truth[lost, key[lost]] = -1
    sources: dict[str, Source] = {}
    if all(answer.scores is not None for answer in answers):
        sources["given"] = lambda argument: given(answers, steps)
    if policy is not None:
        sources |= _asked(policy, answers, (batch, steps), kind.lead, seed, progress)
    subject = Subject(
        name=path.stem,
        about=f"{kind.name}: {len(answers)} answers, the first wrong step marked by people",
        rollouts=batch,
        steps=steps,
        truth=truth,
        key=key,
        sources=sources,
        usual={"": next(iter(sources), "")},
    )
    return subject, rows


def spelled(answers: Sequence[Labelled], policy: CausalPolicy | None, end: bool = False) -> tuple[Rollouts, StepMap]:
    """The answers as rollouts of a group each: in the policy's tokens, or without one in a token a step.

    end: with one step more, of one token, that stands for what follows the last.
    """
    rows, begins = [], []
    for n, answer in enumerate(answers):
        tokens = [0] if policy is None else policy.encode(answer.prompt)
        mask, starts = [False] * len(tokens), []
        for step in [*answer.steps, *[""] * end]:
            own = [1] if policy is None or not step else policy.encode_answer(step.rstrip("\n") + "\n")
            starts.append(len(tokens))
            tokens, mask = [*tokens, *own], [*mask, *[True] * len(own)]
        rows.append(Rollout(tokens, mask, n, float(answer.key == NONE)))
        begins.append(starts)
    batch = collate(rows, dtype=torch.float64)
    opening = torch.zeros_like(batch.action_mask)
    for n, starts in enumerate(begins):
        opening[n, starts] = True
    return batch, number_steps(batch, opening)


def given(answers: Sequence[Labelled], steps: StepMap) -> Scores:
    """Scores of the file; before the first step 1, nothing being wrong there, unless the file says."""
    wide = torch.zeros(steps.mask.shape[0], steps.width + 1, dtype=torch.float64)
    for n, answer in enumerate(answers):
        assert answer.scores is not None
        own = answer.scores if len(answer.scores) > len(answer.steps) else (1.0, *answer.scores)
        wide[n, : len(own)] = torch.tensor(own, dtype=torch.float64)
    return Scores.around(wide, steps.counts)


def write_scored(path: Path, rows: Sequence[Row], scores: Scores, steps: StepMap) -> None:
    """Write the rows with their scores as `step_scores`, before the first step and after each."""
    written = []
    for n, row in enumerate(rows):
        after = scores.after[n, : int(steps.counts[n])].tolist()
        written.append(row | {"step_scores": [float(scores.before[n, 0]), *after]})
    write_rows(path, written)


def _asked(
    policy: CausalPolicy,
    answers: Sequence[Labelled],
    batch: tuple[Rollouts, StepMap],
    lead: str,
    seed: int,
    progress: Callable[[str], None],
) -> dict[str, Source]:
    """Sources that ask a policy."""
    missing = next((n for n, answer in enumerate(answers) if answer.reference is None), None)
    if missing is not None:
        raise InputError(f"answer {missing} has no reference answer, and a policy scores steps by it")
    starts = [len(row[0].tokens) for row in prefixes_before_steps(*batch)]

    def reference(group: Hashable) -> str:
        assert isinstance(group, int)
        found = answers[group].reference
        assert found is not None
        return found

    def score(group: Hashable, tokens: Sequence[int]) -> float:
        assert isinstance(group, int)
        text, offsets = policy.spell(tokens)
        return math_equal(text[offsets[starts[group]][0] :], reference(group))

    longest = int(batch[0].action_counts.max()) + LONGEST
    asked = Answers(policy, *batch, score, Sampling(longest, max_rows=64), seed)
    rollouts, steps = spelled(answers, policy, end=True)
    ended = replace(asked, rollouts=rollouts, steps=steps)
    likely = by_likelihood(ended, lambda group: f" {reference(group)}", lead, progress)
    return {
        "likelihood": lambda argument: Scores.around(likely(argument), batch[1].counts),
        "mc": asked.by_monte_carlo,
    }
