"""How well credit agrees with what is known of the steps: figures of a whole set of answers, under weights.

A figure is asked for under weights [B, N], how often each answer counts: once each for the figure itself, and as often
as it was drawn for each bootstrap sample of answers. So a figure is [B]; NaN where it says nothing, as a correlation
with credit that is the same everywhere.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.audit.subject import NONE

Grid = Float[Tensor, "N K"]
Steps = Bool[Tensor, "N K"]
Key = Int[Tensor, " N"]
Weights = Float[Tensor, "B N"]
Figure = Float[Tensor, " B"]

IDLE = 0.05
"""A step that truly changed the value by at most this changed nothing."""
AT_ONCE = 1 << 21
"""Numbers in one grid of ranks, so that bootstrap samples of a large file fit."""


def pearson(x: Grid, y: Grid, mask: Steps, weights: Weights) -> Figure:
    """Correlation over the steps of all answers.

    >>> grid, mask = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[True] * 3])
    >>> pearson(grid, 1 - 2 * grid, mask, torch.ones(1, 1))
    tensor([-1.], dtype=torch.float64)
    """
    x, y, weights = _centred(x, mask), _centred(y, mask), weights.double()
    count = weights @ mask.double().sum(1)
    mean_x, mean_y = (weights @ grid.sum(1) / count for grid in (x, y))
    products = (weights @ (a * b).sum(1) / count for a, b in ((x, y), (x, x), (y, y)))
    xy, xx, yy = products
    return _correlation(xy - mean_x * mean_y, xx - mean_x**2, yy - mean_y**2)


def spearman(x: Grid, y: Grid, mask: Steps, weights: Weights) -> Figure:
    """Correlation of the ranks, equals sharing the mean of theirs; ranked anew in every bootstrap sample."""
    owner = torch.arange(len(mask)).unsqueeze(1).expand(mask.shape)[mask]
    size = max(1, AT_ONCE // max(1, len(owner)))
    return torch.cat([_spearman(x[mask], y[mask], part[:, owner]) for part in torch.split(weights.double(), size)])


def hits(credit: Grid, key: Key, mask: Steps, at: int) -> Float[Tensor, " N"]:
    """Of each answer, the chance that its key step is among the `at` most blamed ones; 0 where none is key.

    Blamed is what has credit below 0. Of steps that are blamed alike each is as likely to come first.

    >>> mask, key = torch.tensor([[True] * 4]), torch.tensor([2])
    >>> [hits(torch.tensor([[-1.0, 0.0, -0.5, -0.5]]), key, mask, at).item() for at in (1, 2, 3)]
    [0.0, 0.5, 1.0]
    """
    own = credit.gather(1, key.clamp(min=0).unsqueeze(1))
    before = ((credit < own) & mask).sum(1)
    alike = ((credit == own) & mask).sum(1).clamp(min=1)
    chance = ((at - before) / alike).clamp(0, 1).double()
    return torch.where((key != NONE) & (own.squeeze(1) < 0), chance, 0)


def by_chance(key: Key, mask: Steps, at: int) -> Float[Tensor, " N"]:
    """What `hits` is for steps blamed at random."""
    return torch.where(key != NONE, (at / mask.sum(1).clamp(min=1)).clamp(max=1).double(), 0)


def ratio(part: Float[Tensor, " N"], whole: Float[Tensor, " N"], weights: Weights) -> Figure:
    """The sum of `part` over that of `whole`; NaN where there is nothing whole."""
    return (weights.double() @ part.double()) / (weights.double() @ whole.double())


def on_key(credit: Grid, key: Key, mask: Steps) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Of each lost answer, credit squared at its key step, and at all its steps."""
    squares = torch.where(mask & (key != NONE).unsqueeze(1), credit, 0).double() ** 2
    return squares.gather(1, key.clamp(min=0).unsqueeze(1)).squeeze(1), squares.sum(1)


def on_idle(credit: Grid, truth: Grid, mask: Steps) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Of each answer, the size of credit on steps that changed nothing, and of all credit."""
    sizes = torch.where(mask, credit, 0).abs().double()
    return torch.where(truth.abs() <= IDLE, sizes, 0).sum(1), sizes.sum(1)


def resamples(answers: int, count: int, seed: int) -> Weights:
    """How often each answer is drawn in each bootstrap sample."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(answers, (count, answers), generator=generator)
    return torch.zeros(count, answers, dtype=torch.float64).scatter_add_(1, drawn, torch.ones_like(drawn).double())


def interval(figures: Figure) -> tuple[float, float]:
    """The middle 95 % of bootstrap figures; those that say nothing are left out."""
    told = figures[~figures.isnan()]
    if not len(told):
        return float("nan"), float("nan")
    low, high = torch.quantile(told, torch.tensor([0.025, 0.975], dtype=told.dtype)).tolist()
    return low, high


def _centred(grid: Grid, mask: Steps) -> Grid:
    """Less its mean over the steps, so that squares keep their digits."""
    grid = grid.double()
    return torch.where(mask, grid - grid[mask].mean(), 0)


def _correlation(xy: Figure, xx: Figure, yy: Figure) -> Figure:
    spread = xx.clamp(min=0) * yy.clamp(min=0)
    return torch.where(spread > 1e-24, xy / spread.clamp(min=1e-24).sqrt(), torch.nan).clamp(-1, 1)


def _spearman(x: Float[Tensor, " S"], y: Float[Tensor, " S"], counts: Float[Tensor, "B S"]) -> Figure:
    rank_x, rank_y = _ranks(x, counts), _ranks(y, counts)
    count = counts.sum(1, keepdim=True)
    off_x, off_y = ((rank - (counts * rank).sum(1, keepdim=True) / count) / count for rank in (rank_x, rank_y))
    return _correlation(
        *((counts * a * b).sum(1) / count[:, 0] for a, b in ((off_x, off_y), (off_x, off_x), (off_y, off_y)))
    )


def _ranks(entries: Float[Tensor, " S"], counts: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """The rank of each entry where each is there so many times."""
    distinct, place = torch.unique(entries, return_inverse=True)
    there = torch.zeros(len(counts), len(distinct), dtype=counts.dtype).index_add_(1, place, counts)
    return (there.cumsum(1) - there + (there + 1) / 2)[:, place]
