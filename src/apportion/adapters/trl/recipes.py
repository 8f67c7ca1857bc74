"""Which recipe a trainer of TRL follows, and which of TRL's settings do not go with it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from apportion import normalise, recipes
from apportion.adapters.trl.values import Continuations
from apportion.errors import InputError
from apportion.ledger import Recipe
from apportion.rewards.mixing import Bootstrapped
from apportion.steps import splitters
from apportion.values.baselines import given

grpo = replace(recipes.grpo(), normalise=partial(normalise.group_std_plus, eps=1e-4))
"""As TRL works it out: advantage = (reward - mean) / (std + 1e-4)."""


def recipe_called(recipe: object) -> Recipe | None:
    """The recipe of that name, or as it is; `grpo` is TRL's own, to the last digit.

    Raises InputError for an unknown name, or what is no recipe.
    """
    if isinstance(recipe, str):
        return grpo if recipe == "grpo" else recipes.by_name(recipe)
    if recipe is None or isinstance(recipe, Recipe):
        return recipe
    raise InputError(f"recipe must be a name, a Recipe or None, got {type(recipe).__name__} {recipe!r}")


def refuse_values(recipe: Recipe | None, values: object | None) -> None:
    """Raise InputError where a recipe lacks values, or would not look at them."""
    if recipe is None:
        if values is not None:
            raise InputError("recipe=None leaves TRL's advantages alone, so `values` would do nothing; leave it out")
        return
    if values is not None and not isinstance(values, Continuations) and not callable(values):
        raise InputError(f"values must be Continuations(...) or a function, got {type(values).__name__}")
    if recipe.value is given and values is None:
        raise InputError(
            f"recipe {recipe.name!r} takes the values of steps as given: pass values=Continuations(...) for "
            "Monte-Carlo values, or values=FUNCTION"
        )
    if recipe.value is not given and values is not None:
        raise InputError(
            f"recipe {recipe.name!r} works its values out itself, so `values` would do nothing; leave it out"
        )
    if isinstance(recipe.reward, Bootstrapped) and isinstance(values, Continuations):
        raise InputError(
            f"recipe {recipe.name!r} bootstraps answers that were cut off from a value behind their last token, which "
            "Continuations does not estimate; give a function for `values`, or take recipe 'vineppo'"
        )


def refuse_conflicts(recipe: Recipe, args: Any) -> None:
    """Raise InputError for a setting of TRL that would do nothing, or would undo the recipe."""
    scaling = args.scale_rewards
    if scaling == "batch" or (scaling == "none" and recipe.normalise is not normalise.none):
        raise InputError(
            f"scale_rewards={scaling!r} would do nothing: recipe {recipe.name!r} says how credit is normalised; leave "
            "it out (recipe='dr_grpo' does not scale at all)"
        )
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise InputError(
            f"multi_objective_aggregation={args.multi_objective_aggregation!r} would do nothing: rewards are summed by "
            "their weights, and the recipe normalises; leave it out"
        )
    if args.importance_sampling_level == "sequence" and recipe.split is not splitters.whole:
        raise InputError(
            f"importance_sampling_level='sequence' gives every token of an answer its mean credit, which undoes recipe "
            f"{recipe.name!r}; use 'token', or a recipe for whole answers"
        )
