"""The two ways in which `apportion` refuses to go on."""

from __future__ import annotations


class ApportionError(Exception):
    """Anything that `apportion` raises on purpose."""


class InputError(ApportionError):
    """Your data or settings: says what was asked, what came, where, and what to do."""


class LawError(ApportionError):
    """Our sums: a law that the recipe declares does not hold on this batch."""
