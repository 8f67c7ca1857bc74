"""Curves as a picture (SVG): a line an arm, the mean of its seeds, and a band from the lowest to the highest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from html import escape

from apportion.compare.comparison import Comparison
from apportion.compare.runs import AXES, Arm

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 48, 40, 16, 48
POINTS = 120
SMOOTH = 0.05
"""A point of a line is the mean over so much of the axis before it."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's, which colour-blind people tell apart."""


def picture(comparison: Comparison, axis: str) -> str:
    """Draw the arms over `tokens` or `seconds`, as one `<svg>` element that needs nothing else."""
    upto = comparison.upto[axis]
    places = [upto * (n + 1) / POINTS for n in range(POINTS)]
    bands = [_band(arm, axis, places, SMOOTH * upto) for arm in comparison.arms]
    top = _ceiling(max(high for band in bands for _, _, high in band))

    def x(place: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * place / upto

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / top

    def drawn() -> Iterator[str]:
        for n in range(5):
            rate, place = top * n / 4, upto * n / 4
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate):.1f}" y2="{y(rate):.1f}"/>'
            yield f'<text x="{LEFT - 6}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.0%}</text>'
            yield f'<text x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{place:,.0f}</text>'
        yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{AXES[axis]}</text>'
        for n, band in enumerate(bands):
            colour, dash = COLOURS[n % len(COLOURS)], "" if n < len(COLOURS) else ' stroke-dasharray="6 3"'
            edge = [(x(place), y(high)) for place, (_, _, high) in zip(places, band, strict=True)]
            edge += [(x(place), y(low)) for place, (low, _, _) in reversed(list(zip(places, band, strict=True)))]
            line = [(x(place), y(mean)) for place, (_, mean, _) in zip(places, band, strict=True)]
            yield f'<polygon points="{_joined(edge)}" fill="{colour}" fill-opacity="0.15"/>'
            yield f'<polyline points="{_joined(line)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'

    title = f"{comparison.score.replace('_', ' ')} by {AXES[axis]}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="currentColor"><title>{escape(title)}</title>'
        "<style>.grid { stroke: currentColor; stroke-opacity: 0.15 }</style>" + "".join(drawn()) + "</svg>"
    )


def colour(number: int) -> str:
    """The colour of the arm of that number."""
    return COLOURS[number % len(COLOURS)]


def _band(arm: Arm, axis: str, places: list[float], window: float) -> list[tuple[float, float, float]]:
    """Lowest, mean and highest of the seeds at every place."""
    each = [[run.rate_at(place, axis, window) for run in arm.runs] for place in places]
    return [(min(rates), statistics.fmean(rates), max(rates)) for rates in each]


def _ceiling(rate: float) -> float:
    """A round number over it."""
    unit = 10.0 ** math.floor(math.log10(rate)) if rate > 0 else 1.0
    return next(unit * step for step in (1, 1.2, 1.6, 2, 4, 6, 8, 10) if unit * step >= rate)


def _joined(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
