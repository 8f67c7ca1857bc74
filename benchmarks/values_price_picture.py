"""Draw error against tokens, a panel a subject and a line a source of values."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "apportion"  # the same bytes for the same figures

import matplotlib.pyplot as plt  # noqa: E402

FREE = 0.3  # where on the axis stands what generates no tokens


def draw(panels: dict[str, dict[str, list[tuple[float, float]]]], path: Path) -> None:
    """panels: of each subject, of each source, (tokens over those of the answers, mean absolute error)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4.5), squeeze=False)
    for axis, (name, curves) in zip(axes[0], panels.items(), strict=True):
        for curve, points in curves.items():
            places = sorted((max(tokens, FREE), error) for tokens, error in points)
            axis.plot(*zip(*places, strict=True), "o-", markersize=4, label=curve)
        axis.set_xscale("log")
        axis.set_title(name)
        axis.set_xlabel(f"tokens generated for values / tokens of the answers (at {FREE}: none)")
        axis.set_ylabel("mean absolute error")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
