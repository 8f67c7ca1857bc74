"""Draw pass rate against generated tokens: a line a recipe, the mean of its seeds, and a band of all of them."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "apportion"  # the same bytes for the same figures

import matplotlib.pyplot as plt  # noqa: E402

Curve = list[tuple[int, float]]
WINDOW = 5  # steps that a line is smoothed over
POINTS = 100


def draw(curves: dict[str, list[Curve]], tokens: int, path: Path) -> None:
    """curves: of each recipe, of each seed, (tokens generated, pass rate) of every step."""
    figure, axis = plt.subplots(figsize=(8, 5))
    places = [tokens * (point + 1) / POINTS for point in range(POINTS)]
    for name, seeds in curves.items():
        rates = [[_rate_at(curve, place) for curve in seeds] for place in places]
        [line] = axis.plot(places, [statistics.fmean(each) for each in rates], label=name)
        axis.fill_between(places, [min(each) for each in rates], [max(each) for each in rates], alpha=0.12)
        line.set_linewidth(2)
    axis.set_xlabel("tokens generated, continuations included")
    axis.set_ylabel("pass rate of sampled answers")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _rate_at(curve: Curve, tokens: float) -> float:
    """Mean of the steps around that place."""
    place = bisect_right([spent for spent, _ in curve], tokens)
    near = curve[max(0, place - WINDOW // 2 - 1) : place + WINDOW // 2] or curve[:1]
    return statistics.fmean(rate for _, rate in near)
