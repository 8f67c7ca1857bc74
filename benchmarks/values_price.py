"""Measure what values cost: how far off they are, against the tokens generated for them.

    python benchmarks/values_price.py --references FILE --picture benchmarks/values_price.svg
    python benchmarks/values_price.py --quick            # does it run? Its figures mean nothing

Two writers. One is a rule that errs in 12 % of its steps, so its values are worked out exactly; the other is the
embedded model, with references of 2,000 continuations of every prefix (kept in FILE, for they take minutes). Each
source of values labels the same answers from several seeds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import torch
from measure import Owed, Section, at_most, figure
from torch import Tensor
from values_price_picture import draw
from values_subjects import GROUP, Subject, embedded, written

from apportion.train import trees
from apportion.values import belief, boundaries
from apportion.values.engine import Prefix, Wanted
from apportion.values.monte_carlo import MonteCarlo, answers_in_tree, marked_tree, prefixes_before_steps
from apportion.values.rules import Rule, adaptive, uniform

REFERENCE = 2000
SHARE = 0.5  # of the tokens of six continuations of everything, that the adaptive source may have for their error


Source = Callable[[Subject, int], tuple[Tensor, int]]
"""(subject, seed) -> values, and tokens generated for them."""


def monte_carlo(rule: Rule, where: str = "every", *, published: bool = False) -> Source:
    """As published: a sample counts for the prefix that it was drawn from, and a value is their mean."""

    def source(subject: Subject, seed: int) -> tuple[Tensor, int]:
        values = MonteCarlo(
            subject.engine(seed),
            subject.score,
            rule,
            boundaries.by_name(where),
            pooled=not published,
            mean=belief.sample_mean if published else belief.mean,
        )
        found = values.estimate(subject.rollouts, subject.steps)
        return found.value, found.spent

    return source


def tree(forks: float) -> Source:
    """Branches at line ends, spread evenly, so many for each answer; values by all that runs through a prefix."""

    def source(subject: Subject, seed: int) -> tuple[Tensor, int]:
        rollouts, steps, engine = subject.rollouts, subject.steps, subject.engine(seed)
        before = prefixes_before_steps(rollouts, steps)
        samples = marked_tree(before, mean=belief.mean)
        answers_in_tree(samples, rollouts, before)
        chosen = trees.evenly(rollouts, steps, round(forks * GROUP), random.Random(seed))
        counts: dict[Prefix, int] = {}
        for fork in chosen:
            counts[fork.prefix] = counts.get(fork.prefix, 0) + 1
        wanted = [Wanted(prefix, 0, count) for prefix, count in counts.items()]
        spent = 0
        for found in engine.draw(wanted):
            prefix = wanted[found.of].prefix
            answer = [*prefix.tokens, *found.tokens]
            score = subject.score(prefix.group, answer)
            assert score is not None
            samples.add(prefix.group, answer, len(prefix.tokens), score)
            spent += found.cost
        values = torch.zeros(steps.mask.shape, dtype=torch.float64)
        for n, row in enumerate(before):
            for k, prefix in enumerate(row):
                values[n, k] = samples.estimate(prefix.group, prefix.tokens).mean
        return values, spent

    return source


def by_likelihood(subject: Subject, seed: int) -> tuple[Tensor, int]:
    assert subject.likelihood is not None
    return subject.likelihood(), 0


SIX = "k = 6"
CURVES: dict[str, dict[str, Source]] = {
    "uniform": {f"k = {k}": monte_carlo(uniform(k), published=True) for k in (1, 2, 4, 6, 8, 16)},
    "uniform, samples shared": {f"k = {k}": monte_carlo(uniform(k)) for k in (1, 2, 4, 6)},
    "adaptive": {f"error {e}": monte_carlo(adaptive(e)) for e in (0.25, 0.2, 0.16, 0.13)},
    "adaptive, refine:0.35": {
        f"error {e}": monte_carlo(adaptive(e), "refine:0.35") for e in (0.25, 0.2, 0.18, 0.16, 0.13)
    },
    "first lines, then reuse": {
        f"first:{m}, k = 6": monte_carlo(uniform(6), f"first:{m}", published=True) for m in (1, 2, 3, 4)
    },
    "every n-th, interpolated": {
        f"nth:{n}, k = 6": monte_carlo(uniform(6), f"nth:{n}", published=True) for n in (4, 3, 2)
    },
    "first failure": {"first_failure, k = 6": monte_carlo(uniform(6), "first_failure", published=True)},
    "tree": {f"{forks:g} branches an answer": tree(forks) for forks in (0, 0.5, 1, 2, 4)},
    "likelihood": {"of the answer": by_likelihood},
}


@dataclass(frozen=True)
class Point:
    """Tokens over those of the answers, and mean absolute error; means over the seeds, with their standard error."""

    label: str
    tokens: float
    error: float
    spread: float


def measured(subject: Subject, seeds: int) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for name, sources in CURVES.items():
        if name == "likelihood" and subject.likelihood is None:
            continue
        curves[name] = []
        for label, source in sources.items():
            found = [source(subject, seed) for seed in range(seeds)]
            errors = [subject.off_by(values) for values, _ in found]
            tokens = statistics.fmean(spent for _, spent in found) / subject.tokens
            spread = statistics.stdev(errors) / sqrt(seeds) if seeds > 1 else 0.0
            curves[name].append(Point(label, tokens, statistics.fmean(errors), spread))
    return curves


def price_section(subject: Subject, curves: dict[str, list[Point]], seeds: int) -> Section:
    section = Section(
        f"H · The price of values: {subject.name}",
        f"{len(subject.rollouts)} answers in groups of {GROUP}, {int(subject.steps.mask.sum())} lines; means over "
        f"{seeds} seeds. Tokens: generated for values, over those of the answers. Shared, adaptive, tree: answers also "
        "count as samples of what they run through; the others are as published.",
        ("source", "setting", "tokens", "mean absolute error", "± standard error"),
    )
    for name, points in curves.items():
        for point in points:
            cells = [figure(point.tokens), f"{point.error:.4f}", f"{point.spread:.4f}"]
            section.rows.append([name, point.label, *cells])
    section.owed = [_owed(curves)]
    return section


def _owed(curves: dict[str, list[Point]]) -> Owed:
    """Of the adaptive source, the cheapest setting with at most the error of six continuations of everything."""
    [six] = [point for point in curves["uniform"] if point.label == SIX]
    adaptive_points = [point for name in curves if name.startswith("adaptive") for point in curves[name]]
    enough = [point.tokens for point in adaptive_points if point.error <= six.error]
    found = min(enough) / six.tokens if enough else None
    return at_most("tokens of the adaptive source over those of uniform k = 6, at most the same error", found, SHARE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--references", type=Path, help="keep the references of the embedded model here")
    parser.add_argument("--picture", type=Path, help="draw the curves here")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        subjects, seeds = [written(3, 1, 2), embedded(3, 1, 2, 20, None)], 1
    else:
        subjects = [written(8, 3, 24), embedded(5, 2, 4, REFERENCE, options.references)]
        seeds = options.seeds
    found = {subject.name: measured(subject, seeds) for subject in subjects}
    for subject in subjects:
        print(price_section(subject, found[subject.name], seeds).markdown(), flush=True)
    if options.picture:
        draw(
            {
                name: {curve: [(point.tokens, point.error) for point in points] for curve, points in curves.items()}
                for name, curves in found.items()
            },
            options.picture,
        )


if __name__ == "__main__":
    main()
