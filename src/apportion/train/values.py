"""Values of steps in training, for recipes that take their values as given: the policy's own, and the ceiling."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.ledger import Ledger
from apportion.policy.continuing import InProcess
from apportion.rewards.schedules import best_of_group
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.tasks.chain import exact_value, judge_steps
from apportion.tasks.problem import Problem
from apportion.train.collect import Collector, chance
from apportion.train.judging import Verdict, refuse_if_all_failed
from apportion.values import belief, boundaries
from apportion.values.baselines import Value
from apportion.values.belief import sample_mean
from apportion.values.engine import Drawn, Engine, Prefix, Wanted
from apportion.values.likelihood import Asked, likelihood
from apportion.values.monte_carlo import MonteCarlo, Score, prefixes_before_steps
from apportion.values.rules import adaptive, uniform
from apportion.values.spot_check import Gap, spot_check

Source = Callable[[Collector, Sequence[Problem], int], Value]
"""(policy with its task and settings, problem of each group, step of the run) -> values."""


def monte_carlo(collector: Collector, problems: Sequence[Problem], step: int) -> Value:
    """Continue prefixes with the policy and ask the same judge.

    As many times for each as published; or, to a standard error, as many as it takes: then answers and continuations
    count for all that they run through, as if `mc_temperature_factor` were 1, and a value is what they let us believe.
    """
    config = collector.config
    engine, score = continued(collector, problems, step, "monte carlo", config.mc_temperature_factor)
    return MonteCarlo(
        engine,
        score,
        rule=uniform(config.mc_samples) if config.mc_error is None else adaptive(config.mc_error),
        boundaries=boundaries.by_name(config.mc_boundaries),
        budget=config.mc_budget,
        pooled=config.mc_error is not None,
        mean=sample_mean if config.mc_error is None else belief.mean,
        which=lambda batch: best_of_group(batch.outcome, batch.groups, batch.votes, share=config.mc_best_share),
    )


def continued(
    collector: Collector, problems: Sequence[Problem], step: int, purpose: str, factor: float = 1.0
) -> tuple[Engine, Score]:
    """The policy as an engine, at `factor` times its temperature, and the judge of what it makes."""
    sampling = collector.sampling(temperature=collector.config.temperature * factor)
    made = _Judged(InProcess(collector.policy, sampling, collector.generator(step, purpose)), collector, problems)
    return made, made.score


class _Judged:
    """The policy as an engine, and the judge of what it makes: he is asked about all of a round at once.

    So every continuation is judged by one process, and one that he fails on stays unscored, as an answer does.
    """

    def __init__(self, engine: Engine, collector: Collector, problems: Sequence[Problem]) -> None:
        self._engine, self._collector, self._problems = engine, collector, problems
        self._prompts = [collector.policy.encode(problem.prompt) for problem in problems]
        self._verdicts: list[Verdict] = []
        self._told = 0

    @property
    def fingerprint(self) -> str:
        return self._engine.fingerprint

    def limit(self, prefix: Prefix) -> int:
        return self._engine.limit(prefix)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        found = list(self._engine.draw(wanted))
        self._verdicts += self._collector.judged([(wanted[one.of].prefix, one.tokens) for one in found], self._question)
        refuse_if_all_failed(self._verdicts)
        yield from found

    def score(self, group: Hashable, tokens: Sequence[int]) -> float | None:
        """Of what was drawn, in its order."""
        self._told += 1
        return self._verdicts[self._told - 1].score

    def _question(self, answer: tuple[Prefix, Sequence[int]]) -> tuple[Problem, str]:
        prefix, more = answer
        assert isinstance(prefix.group, int)
        text = self._collector.answer([*prefix.tokens, *more], len(self._prompts[prefix.group]))
        return self._problems[prefix.group], text


def by_likelihood(collector: Collector, problems: Sequence[Problem], step: int) -> Value:
    """How likely the policy finds the reference answer right behind a prefix. Nothing is sampled."""
    policy, config = collector.policy, collector.config

    def log_likelihood(wanted: Sequence[Asked]) -> list[float]:
        return [
            found
            for first in range(0, len(wanted), config.micro_batch)
            for found in policy.log_likelihood(
                [(asked.prefix.tokens, asked.reference) for asked in wanted[first : first + config.micro_batch]],
                temperature=config.temperature,
            )
        ]

    def reference(group: Hashable) -> list[int]:
        assert isinstance(group, int)
        return policy.encode_answer(problems[group].answer)

    return likelihood(log_likelihood, reference)


def exact(collector: Collector, problems: Sequence[Problem], step: int) -> Value:
    """Work values out, for the task `chain`: what an oracle would say, and so the ceiling of all that estimate.

    Of a writer who errs in as many of a hundred lines as the policy did in these answers.
    """

    def value(rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        prompts = [collector.policy.encode(problem.prompt) for problem in problems]
        verdicts = [
            right
            for n, group in enumerate(rollouts.groups.tolist())
            for right in judge_steps(problems[group], rollouts.response(n))[: collector.config.chain_steps]
        ]
        error = 1 - sum(verdicts) / len(verdicts) if verdicts else 0.0
        grid = torch.zeros_like(rewards)
        for n, row in enumerate(prefixes_before_steps(rollouts, steps)):
            for k, prefix in enumerate(row):
                group = int(rollouts.groups[n])
                answer = collector.answer(prefix.tokens, len(prompts[group])) if prefix.sampled else ""
                grid[n, k] = exact_value(problems[group], answer, error)
        return grid

    return value


def checked(ledger: Ledger, collector: Collector, problems: Sequence[Problem], step: int) -> Gap | None:
    """How far the values of a ledger are from what the policy, continuing, comes to."""
    config = collector.config
    return spot_check(
        ledger.value,
        (ledger.rollouts, ledger.steps),
        continued(collector, problems, step, "check"),
        prefixes=config.check_prefixes,
        samples=config.check_samples,
        chance=chance(config, step, "check"),
    )


BY_NAME: dict[str, Source] = {"monte_carlo": monte_carlo, "likelihood": by_likelihood, "exact": exact}
