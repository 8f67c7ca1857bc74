"""Scores of steps: by continuing, by the likelihood of the reference answer, by a critic."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from apportion import recipes
from apportion.across import ALONE
from apportion.audit.reading import log_likelihoods
from apportion.audit.subject import Scores
from apportion.errors import InputError
from apportion.ledger import apportion
from apportion.policy.causal import CausalPolicy
from apportion.policy.continuing import Lots
from apportion.policy.sampling import Sampling
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap, first_of
from apportion.train.collect import Collector, chance, make_task, torch_chance
from apportion.train.config import resolve
from apportion.train.critic import Critic
from apportion.train.processes import Wrapping
from apportion.values.likelihood import Asked, likelihood
from apportion.values.monte_carlo import MonteCarlo, Score
from apportion.values.rules import uniform
from apportion.values.spot_check import Gap, spot_check

SAMPLES = 6
CHECKED, CHECKS = 96, 16
"""Prefixes of a spot check, and continuations of each."""
CRITIC = {"recipe": "ppo", "learning_rate": 1e-3, "prompts": 16, "group": 8, "critic_updates": 8}
CRITIC_STEPS = 12


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of which prefixes are asked about, and the policy that is asked."""

    policy: CausalPolicy
    rollouts: Rollouts
    steps: StepMap
    score: Score
    sampling: Sampling
    seed: int

    def monte_carlo(self, samples: int, seed: int) -> tuple[Float[Tensor, "N K"], int]:
        """Values as published: so many continuations of every prefix, their mean; and the tokens generated."""
        source = MonteCarlo(self._engine(seed), self.score, uniform(samples), pooled=False, answers=False)
        found = source.estimate(self.rollouts, self.steps)
        return found.value, found.spent

    def by_monte_carlo(self, argument: str) -> Scores:
        """`mc:SAMPLES`."""
        if argument and not (argument.isdecimal() and int(argument)):
            raise InputError(f"mc:{argument}: the number of continuations is a whole number from 1 on")
        values, tokens = self.monte_carlo(int(argument or SAMPLES), self.seed)
        return Scores.before_steps(values, self.rollouts.outcome, self.steps, tokens)

    def gap(self, scores: Scores) -> Gap | None:
        """Hold scores before steps against continuations of some prefixes."""
        return spot_check(
            scores.before,
            (self.rollouts, self.steps),
            (self._engine(self.seed + 2), self.score),
            prefixes=CHECKED,
            samples=CHECKS,
            chance=random.Random(self.seed),
        )

    def _engine(self, seed: int) -> Lots:
        return Lots(self.policy, self.sampling, seed)


def by_likelihood(
    answers: Answers,
    reference: Callable[[Hashable], str],
    lead: str = "",
    progress: Callable[[str], None] = lambda said: None,
) -> Callable[[str], Float[Tensor, "N K"]]:
    """Before every step, how likely the reference is right behind `lead`: the mean probability of its tokens."""
    policy = answers.policy
    words = policy.encode_answer(lead) if lead else []

    def ask(wanted: Sequence[Asked]) -> list[float]:
        pieces = [(each.prefix.tokens, words, each.reference) for each in wanted]
        return log_likelihoods(
            policy, pieces, lambda count: progress(f"likelihood: {count} of {len(wanted)} prefixes read")
        )

    def source(argument: str) -> Float[Tensor, "N K"]:
        if argument:
            raise InputError(f"likelihood takes no number, {argument!r} came")
        value = likelihood(ask, lambda group: policy.encode_answer(reference(group)))
        grid = torch.zeros(answers.steps.mask.shape, dtype=torch.float64)
        return value(answers.rollouts, answers.steps, grid)

    return source


def by_critic(answers: Answers, settings: dict[str, object]) -> Scores:
    """A critic that has learnt on new answers of the policy to training problems, by steps of PPO's own updates."""
    config = resolve(CRITIC | {"seed": answers.seed} | settings)
    collector = Collector(answers.policy, make_task(config), config)
    critic = Critic(answers.policy, config, Wrapping(ALONE))
    recipe, generated = recipes.ppo(gamma=1.0, lam=config.lam), answers.policy.generated
    for step in range(CRITIC_STEPS):
        problems = collector.task.sample(config.prompts, chance(config, step, "problems"))
        rollouts = critic.valued(collector.scored(collector.rollouts(problems, step), problems))
        critic.learn(apportion(rollouts, recipe), torch_chance(config, step, "order", torch.device("cpu")))
    valued = critic.valued(answers.rollouts).step_values
    assert valued is not None
    values = answers.steps.place(valued, "values", first_of)
    tokens = answers.policy.generated - generated
    return Scores.before_steps(values, answers.rollouts.outcome, answers.steps, tokens)
