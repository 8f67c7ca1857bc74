"""The two ways in which `apportion` refuses to go on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ApportionError(Exception):
    """Anything that `apportion` raises on purpose."""


class InputError(ApportionError):
    """Your data or settings: says what was asked, what came, where, and what to do."""


class LawError(ApportionError):
    """Our sums: a law that the recipe declares does not hold on this batch."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, if any is near."""
    names = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {names[0]!r}?" if names else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """As `nearest`, and all the known names."""
    names = list(known)
    return f"{nearest(word, names) or ';'} known: {', '.join(names)}"
