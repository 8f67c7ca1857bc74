"""Settings that cannot be had together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.errors import InputError
from apportion.train.effects import bootstraps, credits_steps, grows_trees, values_by_critic

if TYPE_CHECKING:
    from apportion.train.config import TrainConfig


def refuse_contradictions(config: TrainConfig, place: str) -> None:
    """Raise InputError for settings that cannot be had together."""
    rollouts = config.prompts * config.group
    found = {
        f"task is {config.task!r} and data is {config.data!r}; `data` names the file of the task `data`": (
            (config.task == "data") != (config.data is not None)
        ),
        f"recipe {config.recipe} bootstraps from a critic; values are by {config.values}": (
            bootstraps(config) and config.values != "critic"
        ),
        f"values are worked out (`exact`) for the task chain only; task is {config.task!r}": (
            config.values == "exact" and config.task != "chain"
        ),
        f"first_answers is {config.first_answers}; expected at most the group of {config.group}, and a recipe other "
        "than tree, which has tree_roots": (
            config.first_answers is not None and (config.first_answers > config.group or grows_trees(config))
        ),
        f"tree_roots is {config.tree_roots}; expected at most the group of {config.group}": (
            grows_trees(config) and config.tree_roots > config.group
        ),
        f"{max(config.updates, config.critic_updates)} updates a step, but only {rollouts} rollouts for them": (
            max(config.updates, config.critic_updates if values_by_critic(config) else 1) > rollouts
        ),
        "gradient_checkpointing keeps no keys and values, so a prompt cannot be read once; choose layout packed or "
        "padded": config.gradient_checkpointing and config.layout == "prompts_once",
        "layers in shards are put together for what they give, and not for the keys and values that a prompt leaves; "
        "choose layout packed or padded": config.sharded and config.layout == "prompts_once",
        "entropy_floor is a share of the starting model's entropy, which is not kept (keep_reference); set it to 0": (
            not config.keep_reference and config.kl_beta == 0 and config.entropy_floor > 0
        ),
        f"outcome_recipe is {config.outcome_recipe}, which credits steps; expected one of a whole answer": (
            credits_steps(config.outcome_recipe)
        ),
        f"step_credit_full is {config.step_credit_full}; expected more than step_credit_from, "
        f"{config.step_credit_from}": (
            config.step_credit_full is not None and config.step_credit_full <= config.step_credit_from
        ),
        f"kl_horizon is {config.kl_horizon:g}; expected at least the {rollouts} answers of a step": (
            config.kl_target is not None and config.kl_horizon < rollouts
        ),
        "kl_target moves kl_beta by shares of itself, so kl_beta must be above 0": (
            config.kl_target is not None and config.kl_beta == 0
        ),
    }
    for complaint, holds in found.items():
        if holds:
            raise InputError(f"{place}: {complaint}")
