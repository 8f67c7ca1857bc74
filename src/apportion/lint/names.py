"""The columns that the linter knows, by what they are."""

from __future__ import annotations

from apportion import losses, normalise, recipes
from apportion.errors import InputError, did_you_mean
from apportion.ledger import Recipe
from apportion.steps import splitters

MASKS = ("action_mask", "valid_mask")
NUMBERS = (
    "rewards",
    "values",
    "advantages",
    "returns",
    "kl",
    "logprobs",
    "old_logprobs",
    "ratio",
    "token_loss",
    "policy_loss_grad",
)
ONE_A_ROW = ("rewards", "advantages", "ratio")
"""Columns of numbers that may also come as one number a row, [B] or [B, 1]."""
GRIDS = (*MASKS, "segments", *NUMBERS)
ROLLOUTS = ("groups", "end_values")
ROWS = ("micro_batch",)
FIGURES = ("gamma", "lam", "loss", "divisor", "tolerance")
WORDS = ("recipe", "reduction")
KNOWN = (*GRIDS, *ROLLOUTS, *ROWS, *FIGURES, *WORDS)

TOKEN_RECIPES = {"gae": "gae", "ppo": "gae", "to_go": "to_go", "reinforce_plus_plus": "to_go", "reinforce++": "to_go"}
"""Recipes with credit of its own for every token, and what they are here: GAE, or discounted reward to go."""
REDUCTIONS = (*losses.REDUCTIONS, "fixed_divisor")


def recipe_called(name: str) -> str:
    """The name of a recipe as the checks know it. Raises InputError for one that nobody knows."""
    if name in TOKEN_RECIPES:
        return TOKEN_RECIPES[name]
    if name not in recipes.BY_NAME:
        raise InputError(f"there is no recipe {name!r}{did_you_mean(name, TOKEN_RECIPES | recipes.BY_NAME)}")
    return name


def reduction_called(name: str) -> str:
    """The name of a reduction. Raises InputError for one that nobody knows."""
    if name not in REDUCTIONS:
        raise InputError(f"there is no reduction {name!r}{did_you_mean(name, REDUCTIONS)}")
    return name


def whole_answer_recipe(name: str | None) -> Recipe | None:
    """The recipe of that name, if it gives one number to a whole answer, compared with its group or nothing."""
    if name is None or name in TOKEN_RECIPES:
        return None
    recipe = recipes.by_name(name)
    known = recipe.split is splitters.whole and recipe.normalise in (normalise.none, normalise.group_std)
    return recipe if known else None
