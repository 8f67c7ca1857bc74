"""Monte-Carlo values: continue a prefix several times and take the mean score.

Source: VinePPO, arXiv:2410.01679; Math-Shepherd, arXiv:2312.08935.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap
from apportion.values.belief import UNIT, Mean, Span, sample_mean, standard_error
from apportion.values.boundaries import Boundaries, every
from apportion.values.engine import Engine, Prefix, Wanted
from apportion.values.rules import Rule, uniform
from apportion.values.sample_tree import Estimate, SampleTree

Score = Callable[[Hashable, Sequence[int]], float | None]
"""Score a whole answer (prompt and all) of a group; None = could not be scored."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Values before each step, [N, K]; 0 past a rollout's last step and in rollouts without a vote.

    error: standard errors (`belief.standard_error`); NaN where a value was filled in from its neighbours.
    count: samples behind each. spent: tokens generated for all of them.
    """

    value: Float[Tensor, "N K"]
    error: Float[Tensor, "N K"]
    count: Int[Tensor, "N K"]
    spent: int


@dataclass
class Spending:
    """How far an estimate has come.

    tokens, samples: generated and drawn. settled, wanted: distinct prefixes that have what they need, of those asked
    for so far. error: mean standard error of the settled ones, and of those that have had what this round gives them by
    that alone.
    """

    tokens: int = 0
    samples: int = 0
    settled: int = 0
    wanted: int = 0
    error: float = float("nan")


Progress = Callable[[Spending], None]
"""Told after every continuation."""


@dataclass(frozen=True)
class MonteCarlo:
    """A source of values that continues prefixes by an engine and scores what comes.

    rule: how many continuations a prefix gets. boundaries: at which steps. span: lowest and highest score.
    budget: tokens generated at most; what is not known by then is filled in, with a warning.
    pooled: every sample counts for all prefixes that it runs through (`sample_tree`); False = only for the one that it
    was drawn from, as published. answers: the rollouts' own answers are such samples too; only where the engine samples
    as they were sampled.
    mean: what a value is, of its samples' total and count; `adaptive` warrants its error for `belief.mean`.
    which: the rollouts whose steps are valued; the steps of the others all take their starting value.

    Identical prefixes, of one answer or of several of a group, are valued once.
    """

    engine: Engine
    score: Score
    rule: Rule = field(default_factory=uniform)
    boundaries: Boundaries = field(default_factory=every)
    span: Span = UNIT
    budget: int | None = None
    pooled: bool = True
    answers: bool = True
    mean: Mean = sample_mean
    which: Callable[[Rollouts], Bool[Tensor, " N"]] = field(default=lambda rollouts: rollouts.votes)

    def __call__(self, rollouts: Rollouts, steps: StepMap, rewards: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        return self.estimate(rollouts, steps).value.to(rewards.dtype)

    def estimate(self, rollouts: Rollouts, steps: StepMap, progress: Progress | None = None) -> Estimates:
        """Value the steps of every rollout that has a vote.

        Raises InputError where no continuation at all could be scored, or a score lies outside the span. Warns of
        prefixes of which none could be: they take their neighbours' values.
        """
        return _Estimation(self, rollouts, steps, progress or (lambda spending: None)).run()


class _Estimation:
    """One estimate while it is made. Grids have a column more than there are steps: for what follows the last."""

    def __init__(self, source: MonteCarlo, rollouts: Rollouts, steps: StepMap, progress: Progress) -> None:
        self.source, self.rollouts, self.progress = source, rollouts, progress
        self.before = prefixes_before_steps(rollouts, steps)
        self.tree, self.spending = marked_tree(self.before, source.span, source.mean), Spending()
        self.drawn: dict[Prefix, int] = {}  # continuations that each prefix was given
        self.errors: list[float] = []
        self.there = torch.zeros(len(rollouts), steps.width + 1, dtype=torch.bool)
        self.which = source.which(rollouts).cpu()
        for n, row in enumerate(self.before):
            self.there[n, : len(row)] = True
        if source.pooled and source.answers:
            answers_in_tree(self.tree, rollouts, self.before)

    def run(self) -> Estimates:
        while wanted := self._wanted():
            affordable = self._affordable(wanted)
            if not affordable:
                warnings.warn(
                    f"the budget of {self.source.budget} tokens ended before {len(wanted)} prefixes had all their "
                    "continuations; their values rest on what there is, or on their neighbours'",
                    stacklevel=4,
                )
                break
            self._draw(affordable)
        return self._estimates()

    def _wanted(self) -> list[Wanted]:
        """What the chosen boundaries still need."""
        chosen = self.source.boundaries.choose(self._values(settled=True), self.there) & self.which.unsqueeze(1)
        chosen[:, 0] = self.there[:, 0]
        prefixes = dict.fromkeys(row[k] for n, row in enumerate(self.before) for k in range(len(row)) if chosen[n, k])
        needs = {prefix: self._needs(prefix) for prefix in prefixes}
        self.errors = [self._estimate(prefix).error for prefix, need in needs.items() if not need]
        self.spending.wanted, self.spending.settled = len(needs), len(self.errors)
        self._tell_error()
        return [Wanted(prefix, self.drawn.get(prefix, 0), need) for prefix, need in needs.items() if need]

    def _affordable(self, wanted: list[Wanted]) -> list[Wanted]:
        """As many of them as fit the budget at their longest."""
        if self.source.budget is None:
            return wanted
        left, kept = self.source.budget - self.spending.tokens, []
        for want in wanted:
            limit = max(1, self.source.engine.limit(want.prefix))
            count = min(want.count, left // limit)
            if count > 0:
                kept.append(replace(want, count=count))
                left -= count * limit
        return kept

    def _draw(self, wanted: list[Wanted]) -> None:
        scores: list[list[float | None]] = [[] for _ in wanted]
        for found in self.source.engine.draw(wanted):
            prefix, own = wanted[found.of].prefix, scores[found.of]
            answer = [*prefix.tokens, *found.tokens]
            own.append(score := self.source.score(prefix.group, answer))
            if score is not None:
                self._add(prefix, answer, score)
            if len(own) == wanted[found.of].count:
                told = [score for score in own if score is not None]
                self.errors += [standard_error(sum(told), len(told), self.source.span)] if told else []
                self._tell_error()
            self.drawn[prefix] = self.drawn.get(prefix, 0) + 1
            self.spending.tokens += found.cost
            self.spending.samples += 1
            self.progress(self.spending)

    def _tell_error(self) -> None:
        self.spending.error = sum(self.errors) / len(self.errors) if self.errors else float("nan")

    def _add(self, prefix: Prefix, answer: list[int], score: float) -> None:
        if self.source.pooled:
            self.tree.add(prefix.group, answer, len(prefix.tokens), score)
        else:
            self.tree.add_alone(prefix.group, prefix.tokens, score)

    def _needs(self, prefix: Prefix) -> int:
        return max(0, self.source.rule(self._estimate(prefix), self.drawn.get(prefix, 0)))

    def _estimate(self, prefix: Prefix) -> Estimate:
        return self.tree.estimate(prefix.group, prefix.tokens)

    def _values(self, *, settled: bool) -> Float[Tensor, "N L"]:
        """Values that are known, else NaN: of prefixes that need nothing more, or else of all that were continued."""
        values = torch.full(self.there.shape, float("nan"), dtype=torch.float64)
        for n, row in enumerate(self.before):
            for k, prefix in enumerate(row):
                if self._needs(prefix) == 0 or (prefix in self.drawn and not settled):
                    values[n, k] = self._estimate(prefix).mean
            if row:
                values[n, len(row)] = self.rollouts.outcome[n]
        return values

    def _unscored(self) -> Bool[Tensor, "N L"]:
        """Prefixes that were continued, and of which nothing could be scored."""
        without = [prefix for prefix, count in self.drawn.items() if count and not self._estimate(prefix).count]
        if without and len(without) == len(self.drawn):
            raise InputError(
                f"group {without[0].group!r}: none of {self.drawn[without[0]]} continuations of a prefix could be "
                "scored, nor any of another prefix"
            )
        if without:
            warnings.warn(
                f"of {len(without)} of {len(self.drawn)} prefixes no continuation could be scored; their values are "
                "their neighbours'",
                stacklevel=5,
            )
        missing, found = set(without), torch.zeros_like(self.there)
        for n, row in enumerate(self.before):
            for k, prefix in enumerate(row):
                found[n, k] = prefix in missing
        return found

    def _estimates(self) -> Estimates:
        known = self._values(settled=False)
        known[self._unscored()] = float("nan")
        known[~self.which, 1:] = float("nan")
        values = torch.where(self.there, self.source.boundaries.fill(known), 0)[:, :-1]
        error, count = torch.full(values.shape, float("nan")).double(), torch.zeros(values.shape, dtype=torch.int64)
        for n, row in enumerate(self.before):
            for k, prefix in enumerate(row):
                found = self._estimate(prefix)
                if not known[n, k].isnan():
                    error[n, k], count[n, k] = found.error, found.count
        device = self.rollouts.tokens.device
        return Estimates(values.to(device), error.to(device), count.to(device), self.spending.tokens)


def marked_tree(before: list[list[Prefix]], span: Span = UNIT, mean: Mean = sample_mean) -> SampleTree:
    """A tree, without any sample, in which these prefixes are valued."""
    tree = SampleTree(span, mean)
    for prefix in (prefix for row in before for prefix in row):
        tree.mark(prefix.group, prefix.tokens)
    return tree


def answers_in_tree(tree: SampleTree, rollouts: Rollouts, before: list[list[Prefix]]) -> None:
    """Add the answers themselves: each is a sample of its prompt, and of all that it runs through from there on.

    before: the marked prefixes of each (`prefixes_before_steps`). A branch was drawn freely from where it branched.
    """
    for row, prefixes, outcome in zip(rollouts.rows(), before, rollouts.outcome.tolist(), strict=True):
        if prefixes:
            tree.add(row.group, row.tokens, max(len(prefixes[0].tokens), row.branched_at), outcome)


def prefixes_before_steps(rollouts: Rollouts, steps: StepMap) -> list[list[Prefix]]:
    """For each rollout that has a vote, all tokens before each of its steps; for the others none."""
    prefixes: list[list[Prefix]] = []
    cells = steps.cell.flatten()
    for row, place, votes in zip(rollouts.rows(), rollouts.places(), rollouts.votes.tolist(), strict=True):
        own = cells[place].tolist()
        first = {cell: t for t, cell in reversed(list(enumerate(own))) if cell >= 0}
        ends = sorted(first.values()) if votes else []
        prefixes.append([Prefix(row.group, tuple(row.tokens[:end]), sum(row.action_mask[:end])) for end in ends])
    return prefixes
