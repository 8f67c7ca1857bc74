"""Answers with what their steps are truly worth: what sources of values are held against.

Two writers. One is a rule that errs in 12 % of its steps, so its values are worked out; the other the embedded model,
whose values are told by thousands of continuations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from credit_inputs import seeded
from torch import Tensor

from apportion.policy.causal import CausalPolicy
from apportion.policy.continuing import Lots
from apportion.policy.sampling import Sampling
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps.grid import StepMap
from apportion.steps.text import lines
from apportion.tasks.chain import Chain, exact_value, write_answer
from apportion.tasks.problem import Problem
from apportion.values.engine import Drawn, Engine, Prefix, Wanted
from apportion.values.likelihood import Asked, likelihood
from apportion.values.monte_carlo import MonteCarlo, prefixes_before_steps
from apportion.values.rules import uniform

ERROR = 0.12
LONGEST = 96
GROUP = 8


@dataclass
class Writer:
    """Continues whole lines by the rule that writes answers with errors; a character is a token."""

    problems: Sequence[Problem]
    seed: int
    fingerprint: str = "writer"

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def limit(self, prefix: Prefix) -> int:
        return 2 * LONGEST

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        for i, want in enumerate(wanted):
            assert isinstance(want.prefix.group, int)
            problem = self.problems[want.prefix.group]
            begun = "".join(map(chr, want.prefix.tokens[len(problem.prompt) :]))
            for number in range(want.first, want.first + want.count):
                text = write_answer(problem, self._chance, ERROR, begun)
                yield Drawn(i, number, tuple(map(ord, text)), ended=True, cost=len(text))


@dataclass
class Subject:
    """Answers with what their values truly are. engine: a new one for every seed. likelihood: values by it, if any."""

    name: str
    rollouts: Rollouts
    steps: StepMap
    true: Tensor
    engine: Callable[[int], Engine]
    score: Callable[[Hashable, Sequence[int]], float | None]
    likelihood: Callable[[], Tensor] | None = None

    @property
    def tokens(self) -> int:
        return int(self.rollouts.action_mask.sum())

    def off_by(self, values: Tensor) -> float:
        """Mean absolute error over the steps."""
        return float((values.double() - self.true)[self.steps.mask].abs().mean())


def written(steps: int, wording: int, problems: int) -> Subject:
    """Answers of the rule, and their exact values."""
    chance, task = random.Random(0), Chain(steps, wording)
    asked = task.sample(problems, chance)
    rows = [
        _spelled_out(problem.prompt, write_answer(problem, chance, ERROR), g)
        for g, problem in enumerate(asked)
        for _ in range(GROUP)
    ]

    def score(group: Hashable, tokens: Sequence[int]) -> float:
        assert isinstance(group, int)
        return task.score(asked[group], "".join(map(chr, tokens[len(asked[group].prompt) :])))

    rollouts = collate(rows)
    outcomes = [score(row.group, row.tokens) for row in rows]
    rollouts = rollouts.with_outcome(torch.tensor(outcomes))
    cut = lines(rollouts)
    true = torch.zeros(cut.mask.shape, dtype=torch.float64)
    for n, prefixes in enumerate(prefixes_before_steps(rollouts, cut)):
        problem = asked[int(rollouts.groups[n])]
        for k, prefix in enumerate(prefixes):
            true[n, k] = exact_value(problem, "".join(map(chr, prefix.tokens[len(problem.prompt) :])), ERROR)
    name = f"a rule, {steps} steps, {wording} letters"
    return Subject(name, rollouts, cut, true, lambda seed: Writer(asked, seed), score)


def _spelled_out(prompt: str, answer: str, group: int) -> Rollout:
    text = prompt + answer
    return Rollout(
        tokens=[ord(character) for character in text],
        action_mask=[False] * len(prompt) + [True] * len(answer),
        group=group,
        text=text,
        offsets=[(i, i + 1) for i in range(len(text))],
    )


def embedded(steps: int, wording: int, problems: int, references: int, file: Path | None) -> Subject:
    """Answers of the embedded model, and their values by so many continuations."""
    policy, task, sampling = CausalPolicy.load("embedded"), Chain(steps, wording), Sampling(LONGEST, max_rows=256)
    asked = task.held_out(problems)
    prompts = [policy.encode(problem.prompt) for problem in asked]
    groups = [g for g in range(problems) for _ in range(GROUP)]
    samples = policy.sample([prompts[g] for g in groups], sampling, seeded())

    def answer(group: int, tokens: Sequence[int]) -> str:
        text, offsets = policy.spell(tokens)
        return text[offsets[len(prompts[group])][0] :]

    def score(group: Hashable, tokens: Sequence[int]) -> float:
        assert isinstance(group, int)
        return task.score(asked[group], answer(group, tokens))

    rows = []
    for g, sample in zip(groups, samples, strict=True):
        tokens = [*prompts[g], *sample.tokens]
        text, offsets = policy.spell(tokens)
        mask = [False] * len(prompts[g]) + [True] * len(sample.tokens)
        rows.append(Rollout(tokens, mask, g, score(g, tokens), text=text, offsets=offsets))
    rollouts = collate(rows)
    cut = lines(rollouts)
    if file is not None and file.exists():
        true = torch.load(file)
    else:
        engine = Lots(policy, sampling, seed=10**6)
        true = MonteCarlo(engine, score, uniform(references), pooled=False).estimate(rollouts, cut).value
        if file is not None:
            torch.save(true, file)

    def by_likelihood() -> Tensor:
        def ask(wanted: Sequence[Asked]) -> list[float]:
            return policy.log_likelihood([(one.prefix.tokens, one.reference) for one in wanted])

        def reference(group: Hashable) -> list[int]:
            assert isinstance(group, int)
            return policy.encode_answer(asked[group].answer)

        return likelihood(ask, reference)(rollouts, cut, torch.zeros(cut.mask.shape, dtype=torch.float64))

    name = f"embedded model, {steps} steps, {wording} letters"
    return Subject(name, rollouts, cut, true, lambda seed: Lots(policy, sampling, seed), score, by_likelihood)
