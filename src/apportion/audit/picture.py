"""An audit as a picture: three figures of every method with their intervals, as an SVG that needs nothing else."""

from __future__ import annotations

from html import escape

from apportion.audit.judge import Audit, Figure, Judged

PANELS = (
    ("hit_1", "key step blamed most, % of lost", 0.0, 1.0, 100),
    ("pearson", "correlation with the truth", -0.5, 1.0, 1),
    ("idle_share", "weight on steps that changed none, %", 0.0, 1.0, 100),
)
NAMES, PANEL, GAP, ROW, TOP, FOOT = 210, 240, 40, 24, 62, 34
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .about { font-size: 11px; fill: #57606a }
.grid { stroke: #d0d7de } .chance { stroke: #57606a; stroke-dasharray: 3 3 }
.own { stroke: #0072b2; fill: #0072b2 }
.knows { stroke: #8c959f; fill: #8c959f } .best { stroke: #d55e00; fill: #d55e00 }
.bar { stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .about { fill: #9da7b1 } .grid { stroke: #373e47 } .paper { fill: #0d1117 }
}
"""


def picture(audit: Audit) -> str:
    """Each figure a panel, each method a line of dots; orange is the one to keep, grey knows the truth."""
    width = NAMES + len(PANELS) * (PANEL + GAP)
    height = TOP + ROW * len(audit.judged) + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(f"Methods of credit on {audit.name}")}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12.0, 20.0, f"{audit.name}: {audit.lost} of {audit.answers} answers lost", "head"),
    ]
    for row, one in enumerate(audit.judged):
        parts.append(_text(12.0, _y(row) + 4, one.name + (" *" if one.knows else "")))
    for column, panel in enumerate(PANELS):
        parts += _panel(audit, panel, NAMES + column * (PANEL + GAP + 0.0))
    about = "bars: 95 % over answers; dashed: chance; orange: the best that could be used"
    if any(one.knows for one in audit.judged):
        about += "; grey, *: knows the truth"
    return "\n".join([*parts, _text(12.0, height - 8.0, about, "about"), "</svg>"]) + "\n"


def _panel(audit: Audit, panel: tuple[str, str, float, float, int], left: float) -> list[str]:
    figure, title, low, high, scale = panel
    bottom = TOP + ROW * len(audit.judged)

    def x(value: float) -> float:
        return left + PANEL * (min(max(value, low), high) - low) / (high - low)

    parts = [_text(left, TOP - 20.0, title, "head")]
    for tick in [low + i * (high - low) / (6 if low else 4) for i in range(7 if low else 5)]:
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 8}" y2="{bottom}"/>')
        parts.append(_text(x(tick), bottom + 13.0, f"{scale * tick:g}", "about", "middle"))
    if figure in audit.by_chance:
        at = x(audit.by_chance[figure])
        parts.append(f'<line class="chance" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 8}" y2="{bottom}"/>')
    for row, one in enumerate(audit.judged):
        found = one.figures[figure]
        if found.told:
            parts += _dot(found, _colour(audit, one), _y(row), (x(found.low), x(found.value), x(found.high)))
        else:
            parts.append(_text(x(max(low, 0.0)) + 4, _y(row) + 4, "says nothing", "about"))
    return parts


def _dot(found: Figure, colour: str, y: float, places: tuple[float, float, float]) -> list[str]:
    low, middle, high = places
    return [
        f'<line class="bar {colour}" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>',
        f'<circle class="{colour}" cx="{middle:.1f}" cy="{y}" r="4"/>',
    ]


def _colour(audit: Audit, one: Judged) -> str:
    return "knows" if one.knows else "best" if one.name == audit.best else "own"


def _y(row: int) -> float:
    return TOP + ROW * (row + 0.5)


def _text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
