"""What an audit comes to, in plain words."""

from __future__ import annotations

from apportion.audit.judge import Audit, Judged

WASTEFUL = 0.5
"""From this share of credit on steps that changed nothing, a method is said to spread it."""


def verdict(audit: Audit) -> list[str]:
    """A few sentences: what to keep, what cannot be told from it, what does worse and how."""
    if not audit.lost:
        return ["keep what you have: no answer was lost, so there is no key step to find"]
    by_name = {one.name: one for one in audit.judged}
    best = by_name[audit.best] if audit.best is not None else None
    chance = audit.by_chance["hit_1"]
    said = []
    if best is None or not best.figures["hit_1"].low > chance:
        most = "" if best is None else f" (most: {best.name}, {percent(best)})"
        said.append(f"keep none: no method finds the key step more often than chance, {100 * chance:.0f} %{most}")
    else:
        hit = best.figures["hit_1"]
        said.append(
            f"keep {best.name}: it blames the key step most in {100 * hit.value:.0f} % of lost answers "
            f"({100 * hit.low:.0f} to {100 * hit.high:.0f}; chance {100 * chance:.0f})"
        )
        level = [one for one in audit.judged if one is not best and not one.knows and not _worse(audit, one)]
        if level:
            said.append("not told apart from it: " + ", ".join(f"{one.name} ({_price(one, best)})" for one in level))
    said += [_spreading(one) for one in audit.judged if one is not best and _spreads(one)]
    if knowing := [f"{one.name} ({percent(one)})" for one in audit.judged if one.knows]:
        said.append(f"made from the truth, and so no choice: {', '.join(knowing)}")
    return said


def percent(one: Judged) -> str:
    return f"{100 * one.figures['hit_1'].value:.0f} %"


def _worse(audit: Audit, one: Judged) -> bool:
    less = audit.less_best[one.name]
    return less.high < 0 or not less.told


def _price(one: Judged, best: Judged) -> str:
    cost = f"{one.tokens:,.0f} tokens an answer" if one.tokens or best.tokens else "no tokens either"
    return f"{percent(one)}, {cost}"


def _spreads(one: Judged) -> bool:
    return not one.knows and one.figures["idle_share"].value >= WASTEFUL


def _spreading(one: Judged) -> str:
    share = one.figures["idle_share"].value
    return f"{one.name} spreads {100 * share:.0f} % of its weight on steps that changed nothing"
