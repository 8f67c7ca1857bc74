"""A comparison as one self-contained page."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from apportion.compare.comparison import Comparison
from apportion.compare.picture import colour, picture
from apportion.compare.tables import cells
from apportion.errors import InputError
from apportion.files import write_atomically


def write_page(comparison: Comparison, out: Path) -> None:
    """Write verdicts, curves and tables to `out`."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise InputError("a page needs jinja2: pip install 'apportion[train]'") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = (resources.files("apportion.compare") / "page.html").read_text(encoding="utf-8")
    page = environment.from_string(template).render(
        verdicts=comparison.verdicts,
        pictures=[Markup(picture(comparison, axis)) for axis in comparison.lines],  # escaped where it is made
        tables=[cells(comparison, axis) for axis in comparison.lines],
        colours=[colour(n) for n in range(len(comparison.arms))],
        runs=[f"{run.folder} (seed {run.seed}): {arm.name}" for arm in comparison.arms for run in arm.runs],
    )
    write_atomically(out, page.encode("utf-8", errors="replace"))
