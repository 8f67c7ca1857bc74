"""Recipes as advantage estimators of verl, a trainer that hands them all they need, and rewards by step or token.

verl loads `plugin` by itself where apportion is installed. Nothing here imports verl before verl does.
"""

from apportion.adapters.verl.estimators import Estimator, estimator, register

__all__ = ["TESTED", "Estimator", "estimator", "register"]

TESTED = ">=0.9.1,<0.9.2"
"""The versions of verl that these adapters were tested with."""
