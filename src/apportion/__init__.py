"""Token-level credit in reinforcement learning of language models."""

from apportion import recipes
from apportion.errors import ApportionError, InputError, LawError
from apportion.ledger import Ledger, Recipe, apportion
from apportion.rollouts import Rollout, Rollouts, collate, pack

__all__ = [
    "ApportionError",
    "InputError",
    "LawError",
    "Ledger",
    "Recipe",
    "Rollout",
    "Rollouts",
    "apportion",
    "collate",
    "pack",
    "recipes",
]
