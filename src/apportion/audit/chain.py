"""The embedded task as answers to judge methods by: what each step changed is worked out, not estimated.

Half of the answers are sampled by the embedded policy and have its own errors; half are written by rule, with errors
planted, until one is lost. The exact value of a prefix is that of a writer who errs in as many of a hundred lines as
the policy did in its own answers; so for the policy itself it is exact only as far as it errs alike everywhere.
Continuations of the policy are held beside it (`Subject.reference`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from apportion import credit
from apportion.audit.sources import Answers, by_critic, by_likelihood
from apportion.audit.subject import NONE, Scores, Subject, number
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.rewards.mixing import at_end
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps.grid import StepMap
from apportion.steps.text import lines
from apportion.tasks.chain import Chain, exact_value, judge_steps, write_answer
from apportion.tasks.problem import Problem
from apportion.values.monte_carlo import prefixes_before_steps

GROUP = 8
"""Answers to a problem: half sampled, half planted."""
ANSWERS = 128
PLANTED = 0.25
"""Share of lines that go wrong in planted answers."""
LONGEST = 96
REFERENCE = 16
"""Continuations of every prefix for the credit that others are to agree with."""


def from_chain(
    policy: CausalPolicy | None = None,
    *,
    answers: int = ANSWERS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda said: None,
) -> Subject:
    """Answers of the embedded policy, and planted ones, to problems that it was never trained on."""
    policy = policy or CausalPolicy.load("embedded")
    task, sampling = Chain(), Sampling(LONGEST, max_rows=256)
    problems = task.held_out(max(1, round(answers / GROUP)))
    progress(f"sampling {GROUP // 2} answers to each of {len(problems)} problems, and planting errors in as many")
    rollouts, error = _written(policy, task, problems, sampling, seed)
    steps = lines(rollouts)

    def answer(group: Hashable, tokens: Sequence[int]) -> tuple[Problem, str]:
        assert isinstance(group, int)
        text, offsets = policy.spell(tokens)
        start = len(policy.encode(problems[group].prompt))
        return problems[group], text[offsets[start][0] :] if start < len(tokens) else ""

    values = torch.zeros(steps.mask.shape, dtype=torch.float64)
    for n, row in enumerate(prefixes_before_steps(rollouts, steps)):
        for k, prefix in enumerate(row):
            values[n, k] = exact_value(*answer(prefix.group, prefix.tokens), error)
    truth = credit.telescoping(at_end(rollouts.outcome, steps), values)
    lowest = torch.where(steps.mask, truth, torch.inf).argmin(1)
    asked = Answers(policy, rollouts, steps, lambda group, tokens: task.score(*answer(group, tokens)), sampling, seed)
    exact = Scores.before_steps(values, rollouts.outcome, steps)
    likely = by_likelihood(asked, lambda group: answer(group, [])[0].answer)

    def reference() -> Float[Tensor, "N K"]:
        progress(f"continuing every prefix {REFERENCE} times, to agree with")
        return credit.telescoping(at_end(rollouts.outcome, steps), asked.monte_carlo(REFERENCE, seed + 1)[0])

    def critic(argument: str) -> Scores:
        progress("teaching a critic")
        return by_critic(asked, {"critic": argument} if argument else {})

    def monte_carlo(argument: str) -> Scores:
        progress(f"mc:{argument}: continuing every prefix")
        return asked.by_monte_carlo(argument)

    return Subject(
        name="chain",
        about=f"the embedded task: {len(rollouts)} answers to {len(problems)} problems, half of them sampled (with "
        f"{100 * error:.0f} % of their lines wrong) and half with planted errors; the truth is worked out",
        rollouts=rollouts,
        steps=steps,
        truth=truth,
        key=torch.where(rollouts.outcome < 1, lowest, NONE),
        sources={
            "mc": monte_carlo,
            "critic": critic,
            "likelihood": lambda argument: Scores.before_steps(likely(argument), rollouts.outcome, steps),
            "exact": lambda argument: exact,
            "noisy": lambda argument: noisy(exact, steps, number(argument, "noisy", 0.2), seed),
        },
        usual={"": "mc:6", "gae": "critic"},
        knowing=frozenset({"exact", "noisy"}),
        reference=reference,
        gap=asked.gap,
    )


def noisy(exact: Scores, steps: StepMap, spread: float, seed: int) -> Scores:
    """Exact scores with noise of this standard deviation on each, cut to 0 to 1: a stand-in for a fallible judge.

    He sees the last step as he sees the others, and does not know the outcome.
    """
    generator = torch.Generator().manual_seed(seed)
    wide = torch.zeros(len(steps.mask), steps.width + 1, dtype=torch.float64)
    wide[:, :-1] = exact.before
    last = steps.counts.unsqueeze(1)
    wide.scatter_(1, last, exact.after.gather(1, (last - 1).clamp(min=0)))
    noise = torch.randn(wide.shape, generator=generator, dtype=torch.float64)
    return Scores.around((wide + spread * noise).clamp(0, 1), steps.counts)


def _written(
    policy: CausalPolicy, task: Chain, problems: Sequence[Problem], sampling: Sampling, seed: int
) -> tuple[Rollouts, float]:
    """The answers, a group a problem, and the share of wrong lines in the sampled ones."""
    chance = random.Random(seed)
    prompts = [policy.encode(problem.prompt) for problem in problems]
    groups = [g for g in range(len(problems)) for _ in range(GROUP // 2)]
    generator = torch.Generator(policy.model.device).manual_seed(seed)
    samples = policy.sample([prompts[g] for g in groups], sampling, generator)
    rows, verdicts = [], []
    for g, sample in zip(groups, samples, strict=True):
        row = _row(policy, prompts[g], sample.tokens, g, sample.ended)
        answer = _answer(row, prompts[g])
        verdicts += judge_steps(problems[g], answer)[: task.steps]
        rows.append((row, task.score(problems[g], answer)))
        planted = [*policy.encode_answer(_with_errors(task, problems[g], chance)), min(policy.ends)]
        rows.append((_row(policy, prompts[g], planted, g, True), 0.0))
    batch = collate([row for row, _ in rows], dtype=torch.float64)
    outcome = torch.tensor([score for _, score in rows], dtype=torch.float64)
    return batch.with_outcome(outcome), 1 - sum(verdicts) / max(1, len(verdicts))


def _with_errors(task: Chain, problem: Problem, chance: random.Random) -> str:
    """Written by rule until it is wrong."""
    while task.score(problem, answer := write_answer(problem, chance, PLANTED)):
        pass
    return answer


def _row(policy: CausalPolicy, prompt: list[int], answer: list[int], group: int, ended: bool) -> Rollout:
    tokens = [*prompt, *answer]
    text, offsets = policy.spell(tokens)
    mask = [False] * len(prompt) + [True] * len(answer)
    return Rollout(tokens, mask, group, ended=ended, text=text, offsets=offsets)


def _answer(row: Rollout, prompt: list[int]) -> str:
    assert row.text is not None
    assert row.offsets is not None
    return row.text[row.offsets[len(prompt)][0] :]
