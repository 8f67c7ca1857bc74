"""Runs side by side: what they learnt from the same tokens, and in the same time."""

from apportion.compare.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
