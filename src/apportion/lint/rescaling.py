"""Which map took raw credit to the advantages that came: none, whitening, a constant factor, or some other line.

advantages = (raw - centre) / spread. The line is fitted to the numbers first; then it is asked whose mean and whose
standard deviation these are. Only the sampled tokens have a say in honest statistics, each by itself, or each answer by
its last one (where all tokens of an answer have the same credit, that is the statistic of the answers).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from apportion.lint import tolerance

Kind = Literal["none", "whitened", "centred", "scaled", "affine"]

EPSILONS = (0.0, 1e-8, 1e-6, 1e-5, 1e-4)
"""What others add to a standard deviation, or to a variance before its root is taken."""
ENOUGH = 4
"""Different raw numbers that a line must pass through before it is believed without known statistics."""
SLACK = 4.0
"""How many times its tolerance a few rows may be off a line that the whole batch might lie on."""
SMALLEST = 1e-12
SAMPLED, ANSWERS = "the sampled tokens", "the answers"
EVERY_TOKEN, EVERY_PLACE = "every token, those of the environment too", "every place, padding too"


@dataclass(frozen=True)
class Rescaling:
    """advantages = (raw - centre) / spread. mean_of, spread_of: the places whose statistics they are, "" = unknown."""

    kind: Kind
    centre: float = 0.0
    spread: float = 1.0
    mean_of: str = ""
    spread_of: str = ""

    @property
    def is_honest(self) -> bool:
        """Were all statistics taken over the sampled tokens, or over the answers that they make?"""
        return {self.mean_of, self.spread_of}.isdisjoint((EVERY_TOKEN, EVERY_PLACE))

    def of(self, raw: Tensor) -> Tensor:
        return (raw - self.centre) / self.spread

    def __str__(self) -> str:
        if self.kind == "none":
            return "not normalised"
        if self.kind == "scaled":
            return f"scaled by {1 / self.spread:.6g}"
        return f"{self.kind} (less {self.centre:.6g}, divided by {self.spread:.6g})"


@dataclass(frozen=True)
class Samples:
    """Raw credit over the whole grid, the advantages that came, and the places that count; ends: an answer's last."""

    raw: Tensor
    came: Tensor
    counted: Tensor
    ends: Tensor
    valid: Tensor
    tolerance: float
    stored: float

    def allowed(self, factor: float) -> float:
        """What rounding allows once raw credit was multiplied by `factor`."""
        largest = float(self.came[self.counted].abs().max())
        return tolerance.of_mapped(self.tolerance, factor=factor, largest=largest, stored=self.stored)


def recognised(samples: Samples) -> Rescaling | None:
    """Find the map from raw credit to advantages among those that leave nothing open: none, or known statistics."""
    raw, came = samples.raw[samples.counted], samples.came[samples.counted]
    if _far(raw, came) <= samples.tolerance:
        return Rescaling("none")
    low, high = float(raw.min()), float(raw.max())
    if high - low <= samples.tolerance:
        flat = float(came.abs().max()) <= samples.allowed(1.0)
        return Rescaling("whitened", low, 1.0, SAMPLED, SAMPLED) if flat else None
    line = _line(samples, 1.0)
    if line is None:
        return None
    return next((known for known in _known(samples) if _same(known, line, (low, high), samples)), None)


def fitted(samples: Samples) -> Rescaling | None:
    """Find any rising line from raw credit to advantages, believed where enough different numbers lie on it."""
    steps = torch.unique((samples.raw[samples.counted] / max(samples.tolerance, SMALLEST)).round())
    line = _line(samples, 1.0) if len(steps) >= ENOUGH else None
    if line is None:
        return None
    through_zero = abs(line.centre / line.spread) <= samples.allowed(1 / line.spread)
    return Rescaling("scaled", 0.0, line.spread) if through_zero else line


def plausible(samples: Samples) -> bool:
    """Could these be some of the places of a batch that `recognised` or `fitted` would find a map for?"""
    raw = samples.raw[samples.counted]
    alike = len(raw) == 0 or float(raw.max() - raw.min()) <= SLACK * samples.tolerance
    return alike or _line(samples, SLACK) is not None


def honest(samples: Samples, kind: Kind) -> Rescaling:
    """Whitening or centring as it should be: by the mean and standard deviation of the sampled tokens."""
    raw = samples.raw[samples.counted]
    spread = float(raw.std()) if kind == "whitened" and len(raw) > 1 else 1.0
    return Rescaling(kind, float(raw.mean()), spread or 1.0, SAMPLED, SAMPLED)


def _known(samples: Samples) -> Iterator[Rescaling]:
    """Whitening and centring by the statistics of the sampled tokens first, then by those of wrong places."""
    places = {
        SAMPLED: samples.counted,
        ANSWERS: samples.ends,
        EVERY_TOKEN: samples.valid,
        EVERY_PLACE: torch.ones_like(samples.valid),
    }
    for (mean_of, centred), (spread_of, spreading) in product(places.items(), places.items()):
        centre = float(samples.raw[centred].mean())
        squares = float((samples.raw[spreading] - centre).square().sum())
        count = int(spreading.sum())
        for lost, epsilon in product((1, 0), EPSILONS):
            variance = squares / max(1, count - lost)
            for spread in (math.sqrt(variance) + epsilon, math.sqrt(variance + epsilon)):
                yield Rescaling("whitened", centre, spread, mean_of, spread_of)
        yield Rescaling("centred", centre, 1.0, mean_of, mean_of)


def _line(samples: Samples, slack: float) -> Rescaling | None:
    """The rising line of least squares from raw credit to advantages, if none is off it by more than is allowed."""
    raw, came = samples.raw[samples.counted], samples.came[samples.counted]
    moments = torch.cov(torch.stack([raw, came]))
    slope = float(moments[0, 1] / moments[0, 0])
    if not slope > 0:  # NaN, where raw credit is, too
        return None
    line = Rescaling("affine", float(raw.mean()) - float(came.mean()) / slope, 1 / slope)
    return line if _far(line.of(raw), came) <= slack * samples.allowed(slope) else None


def _same(known: Rescaling, line: Rescaling, ends: tuple[float, float], samples: Samples) -> bool:
    """Do two lines agree over the range of the raw numbers?"""
    if known.spread == 0:
        return False
    apart = max(abs((end - known.centre) / known.spread - (end - line.centre) / line.spread) for end in ends)
    return apart <= samples.allowed(1 / line.spread)


def _far(one: Tensor, other: Tensor) -> float:
    """The largest difference; inf where one is no number."""
    return float(torch.nan_to_num((one - other).abs(), nan=math.inf).max())
