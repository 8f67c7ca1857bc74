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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{hint} known: {', '.join(names)}"
