"""A check: a sign of illness, the figures it is told by, why it matters, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from apportion.doctor.finding import Finding
from apportion.doctor.history import History
from apportion.doctor.trend import FEWEST


def never(history: History) -> str:
    """It may concern any run."""
    return ""


@dataclass(frozen=True)
class Check:
    """A sign of illness. code, name: what it is known by; rule: what holds in a run that is well.

    looks: what it looks at and from when on it speaks. needs: figures; `a or b` needs one of the two.
    log: what would have to be logged, in the words of trainers. causes: codes of findings that explain this one.
    spared: "" or why a run has nothing to do with this. fewest: steps that it takes; of 0, what
    was logged need not be a number.
    """

    code: str
    name: str
    rule: str
    looks: str
    why: str
    remedy: str
    needs: tuple[str, ...]
    log: str
    run: Callable[[History], Finding | None]
    causes: tuple[str, ...] = ()
    spared: Callable[[History], str] = never
    fewest: int = FEWEST

    @property
    def page(self) -> str:
        return f"docs/doctor/{self.code}-{self.name}.md"

    def cannot(self, history: History) -> str:
        """Why it cannot be run on this history, "" where it can."""
        there = history.has if self.fewest else history.logged
        missing = [need for need in self.needs if not any(there(name) for name in need.split(" or "))]
        if missing:
            return f"not logged: {', '.join(missing)}"
        most = max((len(history.series(name).values) for need in self.needs for name in need.split(" or ")), default=0)
        if self.needs and most < self.fewest:
            return f"takes {self.fewest} steps, and {most} were logged"
        return self.spared(history)

    def __call__(self, history: History) -> Finding | None:
        found = self.run(history)
        if found is None:
            return None
        looked = [history.series(name).called for need in self.needs for name in need.split(" or ")]
        return replace(found, code=self.code, called=found.called or tuple(name for name in looked if name))


def rooted(findings: Sequence[Finding], checks: Sequence[Check]) -> tuple[Finding, ...]:
    """The findings, root causes first: none before one that explains it; else by level, and in the order of checks."""
    causes = {check.code: check.causes for check in checks}
    order = {check.code: n for n, check in enumerate(checks)}
    left = {
        found.code: replace(found, follows=tuple(c for c in causes[found.code] if c in {f.code for f in findings}))
        for found in findings
    }
    severity = {"error": 0, "warning": 1, "note": 2}
    sorted_out: list[Finding] = []
    while left:
        free = [found for found in left.values() if not any(cause in left for cause in found.follows)]
        best = min(free or left.values(), key=lambda found: (_worst(found, left, severity), order[found.code]))
        sorted_out.append(left.pop(best.code))
    return tuple(sorted_out)


def _worst(found: Finding, left: dict[str, Finding], severity: dict[str, int]) -> int:
    """The severity of a finding, or of the worst one that it explains."""
    explained = [other for other in left.values() if found.code in other.follows]
    return min(severity[each.level] for each in (found, *explained))
