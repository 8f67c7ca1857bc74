"""Lint: was credit handled right in a batch, whatever framework made it? One page a check in `docs/lint`."""

from apportion.lint.check import Check
from apportion.lint.checks import CHECKS
from apportion.lint.finding import Finding, Place
from apportion.lint.run import lint

__all__ = ["CHECKS", "Check", "Finding", "Place", "lint"]
