"""Judge methods of credit by answers of which it is known what each step changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from apportion.audit import metrics
from apportion.audit.methods import Credited, credited
from apportion.audit.subject import Subject
from apportion.errors import InputError
from apportion.values.spot_check import Gap

RESAMPLES = 1000

FIGURES = {
    "pearson": "correlation with what the steps truly changed",
    "spearman": "the same, of ranks",
    "hit_1": "share of lost answers in which the key step is the most blamed",
    "hit_3": "share of lost answers in which the key step is among the three most blamed",
    "key_share": "share of the square of credit, in lost answers, that lies on the key step",
    "idle_share": "share of the size of credit that lies on steps which changed nothing",
    "residual": "by how much credit misses outcome less starting value, on average",
    "mc": "correlation with the credit by many continuations",
}
"""What is found of every method."""


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % interval over answers; NaN where it says nothing."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        return not isnan(self.value)


@dataclass(frozen=True)
class Judged:
    """What was found of a method. less_first: its figures less the first method's, on the same answers.

    tokens: generated for it, an answer. gap: of its scores from continuations. knows: it knows the truth.
    """

    name: str
    figures: dict[str, Figure]
    less_first: dict[str, Figure] | None
    tokens: float
    source: str | None
    knows: bool
    gap: Gap | None = None


@dataclass(frozen=True)
class Audit:
    """What was found of all methods. by_chance: `hit_1` and `hit_3` of steps blamed at random.

    less_best: of every method's `hit_1`, less that of the best one that does not know the truth.
    """

    name: str
    about: str
    answers: int
    lost: int
    steps: int
    by_chance: dict[str, float]
    judged: tuple[Judged, ...]
    best: str | None
    less_best: dict[str, Figure]


def judge(
    subject: Subject,
    methods: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Callable[[str], None] = lambda said: None,
) -> Audit:
    """Work out every figure of every method, with bootstrap intervals over answers, all methods on the same ones.

    Raises InputError for no method, a method twice, or an unknown one.
    """
    if not methods:
        raise InputError("an audit needs at least one method")
    twice = next((name for name in methods if list(methods).count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the method {twice!r} was asked for twice")
    found = [credited(subject, name) for name in methods]
    weights = metrics.resamples(len(subject.rollouts), resamples, seed)
    weights = torch.cat([torch.ones_like(weights[:1]), weights])
    reference = subject.reference() if subject.reference is not None else None
    tables = []
    for name, one in zip(methods, found, strict=True):
        progress(f"figures of {name}")
        tables.append(_figures(subject, one, reference, weights))
    gaps = _gaps(subject, found)
    judged = tuple(
        Judged(
            name,
            {figure: _figure(values) for figure, values in table.items()},
            {figure: _figure(values - tables[0][figure]) for figure, values in table.items()} if n else None,
            one.tokens / len(subject.rollouts),
            one.source,
            one.knows,
            None if one.source is None else gaps[one.source],
        )
        for n, (name, one, table) in enumerate(zip(methods, found, tables, strict=True))
    )
    best = _best(judged)
    hits = {name: table["hit_1"] for name, table in zip(methods, tables, strict=True)}
    return Audit(
        subject.name,
        subject.about,
        len(subject.rollouts),
        int(subject.lost.sum()),
        subject.steps.total,
        {
            f"hit_{at}": _share(
                metrics.by_chance(subject.key, subject.mask, at), subject.lost.double(), weights[:1]
            ).value
            for at in (1, 3)
        },
        judged,
        best,
        {} if best is None else {name: _figure(found - hits[best]) for name, found in hits.items()},
    )


def _figures(subject: Subject, one: Credited, reference: Tensor | None, weights: Tensor) -> dict[str, Tensor]:
    credit, truth, mask, key = one.credit, subject.truth, subject.mask, subject.key
    lost, everyone = subject.lost.double(), torch.ones_like(subject.outcome)
    nothing = torch.full((len(weights),), float("nan"), dtype=torch.float64)
    return {
        "pearson": metrics.pearson(credit, truth, mask, weights),
        "spearman": metrics.spearman(credit, truth, mask, weights),
        **{f"hit_{at}": metrics.ratio(metrics.hits(credit, key, mask, at), lost, weights) for at in (1, 3)},
        "key_share": metrics.ratio(*metrics.on_key(credit, key, mask), weights),
        "idle_share": metrics.ratio(*metrics.on_idle(credit, truth, mask), weights),
        "residual": metrics.ratio(one.residual.abs(), everyone, weights),
        "mc": nothing if reference is None else metrics.pearson(credit, reference, mask, weights),
    }


def _gaps(subject: Subject, found: Sequence[Credited]) -> dict[str, Gap | None]:
    sources = dict.fromkeys(one.source for one in found if one.source is not None)
    return {source: None if subject.gap is None else subject.gap(subject.scores(source)) for source in sources}


def _figure(values: Tensor) -> Figure:
    """The first is the figure itself, the others are of bootstrap samples."""
    return Figure(float(values[0]), *metrics.interval(values[1:]))


def _share(part: Tensor, whole: Tensor, weights: Tensor) -> Figure:
    return _figure(metrics.ratio(part, whole, weights))


def _best(judged: Sequence[Judged]) -> str | None:
    """Of those that do not know the truth, the one that finds the key step most often; then by correlation."""
    able = [one for one in judged if not one.knows and one.figures["hit_1"].told]

    def worth(one: Judged) -> tuple[float, float]:
        pearson = one.figures["pearson"]
        return one.figures["hit_1"].value, pearson.value if pearson.told else -1.0

    return max(able, key=worth).name if able else None
