"""From problems to scored rollouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isnan, nan
from typing import TypeVar

import torch

from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sample, Sampling
from apportion.rewards.checkers import checker
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps.text import lines
from apportion.tasks.chain import Chain
from apportion.tasks.gym import Gym
from apportion.tasks.problem import Problem, Task
from apportion.tasks.prompts import Prompts
from apportion.train import trees
from apportion.train.config import TrainConfig
from apportion.train.difficulty import more_answers
from apportion.train.figures import PassRate, pass_rate
from apportion.train.judging import Verdict, judged, refuse_if_all_failed

GYM = "gym:"

Item = TypeVar("Item")


def make_task(config: TrainConfig) -> Task:
    """The task that the config names."""
    if config.task == "chain":
        return Chain(steps=config.chain_steps, wording=config.wording)
    if config.data is not None:
        return Prompts.load(config.data, check=checker(config.checker), held_out=config.held_out)
    if config.task.startswith(GYM):
        return Gym(config.task.removeprefix(GYM), held_out=max(1, config.tests))
    raise InputError(f"there is no task {config.task!r}; known: chain, data (with `data`), {GYM}NAME")


def chance(config: TrainConfig, step: int, purpose: str) -> random.Random:
    """The random numbers for one purpose of one step: the same whenever that step is run again."""
    return random.Random(f"{config.seed}/{step}/{purpose}")


@contextmanager
def begun_from(config: TrainConfig, purpose: str) -> Iterator[None]:
    """Within, what torch draws without being given a generator follows from the config's seed."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(chance(config, -1, purpose).getrandbits(62))
        yield


def torch_chance(config: TrainConfig, step: int, purpose: str, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(chance(config, step, purpose).getrandbits(62))


@dataclass(frozen=True)
class Collector:
    """Asks the policy, hands answers to the judge, and keeps the books of which prompt had which problem.

    complaints: why answers could not be judged, since somebody last took them.
    """

    policy: CausalPolicy
    task: Task
    config: TrainConfig
    complaints: list[str] = field(default_factory=list)

    def refuse_long(self) -> None:
        """Raise InputError if an answer to one of the problems that we know might not fit the model's context."""
        known = [*self.task.held_out(self.config.tests)]
        if isinstance(self.task, Prompts):
            known += self.task.training
        for problem in known:
            try:
                self.policy.refuse_long(len(self.policy.encode(problem.prompt)), self.config.max_new_tokens)
            except InputError as error:
                raise InputError(f"the prompt {problem.prompt[:60]!r}: {error}") from error

    def rollouts(self, problems: Sequence[Problem], step: int) -> Rollouts:
        """`group` answers to every problem, or that many on average (see `first_answers`); not all are scored yet."""
        config, generator = self.config, self.generator(step, "sampling")
        if config.first_answers is None:
            return self._ask(problems, [config.group] * len(problems), generator)
        first = self._ask(problems, [config.first_answers] * len(problems), generator)
        first = self.scored(first, problems)
        more = more_answers(first, len(problems) * (config.group - config.first_answers))
        return _joined([*first.rows(), *self._ask(problems, more, generator).rows()], first)

    def tree_rollouts(self, problems: Sequence[Problem], step: int) -> Rollouts:
        """`group` answers to every problem, scored: `tree_roots` of them whole, the others branches of these."""
        config, generator = self.config, self.generator(step, "sampling")
        rollouts = self.scored(self._ask(problems, [config.tree_roots] * len(problems), generator), problems)
        missing, rng = config.group - config.tree_roots, chance(config, step, "forks")
        for rounds_left in range(config.tree_rounds, 0, -1):
            wanted = -(-missing // rounds_left)
            missing -= wanted
            forks = trees.BY_NAME[config.tree_forks](rollouts, lines(rollouts), wanted, rng)
            rollouts = self.scored(self._grown(rollouts, forks, generator), problems)
        return rollouts

    def _grown(self, rollouts: Rollouts, forks: Sequence[trees.Fork], generator: torch.Generator) -> Rollouts:
        """The same rollouts with a branch from every fork, group by group; a branch comes after what it left."""
        rows = rollouts.rows()
        prefixes = [list(fork.prefix.tokens) for fork in forks]
        limits = [self.config.max_new_tokens - fork.prefix.sampled for fork in forks]
        samples = self.policy.sample(prefixes, self.sampling(), generator, limits)
        for fork, prefix, sample in zip(forks, prefixes, samples, strict=True):
            trunk = rows[fork.of]
            assert trunk.logprobs is not None
            branch = replace(
                self._rollout(prefix, sample, trunk.group, len(rows)),
                action_mask=[*trunk.action_mask[: len(prefix)], *[True] * len(sample.tokens)],
                logprobs=[*trunk.logprobs[: len(prefix)], *sample.logprobs],
                branched_at=len(prefix),
            )
            rows.append(branch)
        return _joined(rows, rollouts)

    def pass_rate(self, problems: Sequence[Problem], when: str) -> PassRate:
        """Pass rate of one answer to each problem, sampled as in training."""
        if not problems:
            return PassRate(0, 0)
        rollouts = self._ask(problems, [1] * len(problems), self.generator(-1, when))
        return pass_rate(self.scored(rollouts, problems).outcome)

    def _ask(self, problems: Sequence[Problem], answers: Sequence[int], generator: torch.Generator) -> Rollouts:
        """So many answers to each problem."""
        prompts = [self.policy.encode(problem.prompt) for problem in problems]
        asked = [g for g, count in enumerate(answers) for _ in range(count)]
        samples = self.policy.sample([prompts[g] for g in asked], self.sampling(), generator)
        rows = [
            self._rollout(prompts[g], sample, g, i) for i, (g, sample) in enumerate(zip(asked, samples, strict=True))
        ]
        return collate(rows).to(self.policy.model.device)

    def scored(self, rollouts: Rollouts, problems: Sequence[Problem]) -> Rollouts:
        """The same rollouts with the judge's outcome; NaN where it could not score."""
        outcome, groups = rollouts.outcome.tolist(), rollouts.groups.tolist()
        unscored = [n for n, score in enumerate(outcome) if isnan(score)]  # what was judged before keeps its score
        verdicts = self.judged(unscored, lambda n: (problems[groups[n]], rollouts.response(n)))
        refuse_if_all_failed(verdicts)
        for n, verdict in zip(unscored, verdicts, strict=True):
            outcome[n] = nan if verdict.score is None else verdict.score
        return rollouts.with_outcome(torch.tensor(outcome, dtype=torch.float32, device=rollouts.tokens.device))

    def judged(self, items: Sequence[Item], question: Callable[[Item], tuple[Problem, str]]) -> list[Verdict]:
        """The judge's verdicts on items, of which each process asks about its share; what he fails on is kept."""

        def ask(share: Sequence[Item]) -> list[Verdict]:
            return judged(self.task, [question(item) for item in share], self.config.judge_timeout)

        verdicts = self.policy.across.spread(items, ask)
        self.complaints.extend(verdict.complaint for verdict in verdicts if verdict.complaint is not None)
        return verdicts

    def answer(self, tokens: Sequence[int], prompt_length: int) -> str:
        text, offsets = self.policy.spell(tokens)
        return text[offsets[prompt_length][0] :]

    def generator(self, step: int, purpose: str) -> torch.Generator:
        return torch_chance(self.config, step, purpose, self.policy.model.device)

    def sampling(self, temperature: float | None = None) -> Sampling:
        return Sampling(
            max_new_tokens=self.config.max_new_tokens,
            temperature=temperature or self.config.temperature,
            top_p=self.config.top_p,
        )

    def _rollout(self, prompt: list[int], sample: Sample, group: Hashable, number: int) -> Rollout:
        tokens = [*prompt, *sample.tokens]
        text, offsets = self.policy.spell(tokens)
        return Rollout(
            tokens=tokens,
            action_mask=[False] * len(prompt) + [True] * len(sample.tokens),
            group=group,
            ended=sample.ended,
            id=str(number),
            text=text,
            logprobs=[float("nan")] * len(prompt) + sample.logprobs,
            offsets=offsets,
        )


def _joined(rows: list[Rollout], like: Rollouts) -> Rollouts:
    """Rows in one batch, the groups in their order, and what came first in a group before the rest of it."""
    order = {name: g for g, name in enumerate(like.group_names)}
    return collate(sorted(rows, key=lambda row: order[row.group])).to(like.tokens.device)
