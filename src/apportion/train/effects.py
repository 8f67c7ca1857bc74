"""Settings that have an effect in some runs only, and in which."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from apportion.recipes import BY_NAME
from apportion.rewards.mixing import Bootstrapped
from apportion.steps.splitters import whole
from apportion.values.answers import answers_through
from apportion.values.baselines import given

if TYPE_CHECKING:
    from apportion.train.config import TrainConfig

Test = Callable[["TrainConfig"], bool]


class Only(NamedTuple):
    """A setting has an effect where `holds`; `when` says so in words."""

    holds: Test
    when: str


def bootstraps(config: TrainConfig) -> bool:
    """Whether the recipe needs to know what an answer that was cut off was still worth."""
    return isinstance(BY_NAME[config.recipe]().reward, Bootstrapped)


def grows_trees(config: TrainConfig) -> bool:
    """Whether the recipe takes its values from answers that share a beginning."""
    return BY_NAME[config.recipe]().value is answers_through


def credits_steps(recipe: str) -> bool:
    """Whether a recipe tells the steps of an answer apart."""
    return BY_NAME[recipe]().split is not whole


def needs_values(config: TrainConfig) -> bool:
    """Whether the recipe takes its values as given."""
    return BY_NAME[config.recipe]().value is given


def values_by_critic(config: TrainConfig) -> bool:
    """Whether a critic learns beside the policy."""
    return needs_values(config) and config.values == "critic"


def scheduled(config: TrainConfig) -> bool:
    """Whether the outcome alone decides for a while."""
    return config.step_credit_from > 0 or config.step_credit_full is not None


def _by(source: str) -> Test:
    return lambda config: needs_values(config) and config.values == source


_VALUES = Only(needs_values, "recipes that take their values as given (vineppo, grpo_step, ppo)")
_MONTE_CARLO = Only(_by("monte_carlo"), "values by monte_carlo")
_CRITIC = Only(values_by_critic, "values by a critic")
_CHAIN = Only(lambda config: config.task == "chain", "the task chain")
_TREES = Only(grows_trees, "the recipe tree")
_ADVANTAGES = Only(bootstraps, "the recipe ppo")
_STEPS = Only(
    lambda config: credits_steps(config.recipe) and not grows_trees(config), "recipes that credit steps, but tree"
)
_CLIPPED = Only(
    lambda config: config.updates > 1 or config.replay_share > 0, "several updates on a batch of rollouts, or replay"
)
_KL_IN_LOSS = Only(lambda config: config.kl_beta > 0 and config.kl_in == "loss", "a kl_beta above 0 in the loss")

ONLY: dict[str, Only] = {
    "values": _VALUES,
    "gamma": Only(
        lambda config: bootstraps(config) or values_by_critic(config), "the recipe ppo and values by a critic"
    ),
    "lam": _ADVANTAGES,
    "mc_samples": Only(
        lambda config: _MONTE_CARLO.holds(config) and config.mc_error is None, "values by monte_carlo, without mc_error"
    ),
    "mc_error": _MONTE_CARLO,
    "mc_boundaries": _MONTE_CARLO,
    "mc_best_share": _MONTE_CARLO,
    "mc_budget": _MONTE_CARLO,
    "mc_temperature_factor": _MONTE_CARLO,
    "check_values_every": _VALUES,
    "check_prefixes": Only(lambda config: config.check_values_every is not None, "check_values_every"),
    "check_samples": Only(lambda config: config.check_values_every is not None, "check_values_every"),
    "step_credit_from": _STEPS,
    "step_credit_full": _STEPS,
    "outcome_recipe": Only(scheduled, "step_credit_from or step_credit_full"),
    "replay_steps": Only(lambda config: config.replay_share > 0, "a replay_share above 0"),
    "critic": _CRITIC,
    "critic_learning_rate": _CRITIC,
    "critic_every": _CRITIC,
    "critic_updates": _CRITIC,
    "critic_warmup": _CRITIC,
    "critic_ema": _CRITIC,
    "critic_clip": _CRITIC,
    "critic_lam": _CRITIC,
    "tree_roots": _TREES,
    "tree_forks": _TREES,
    "tree_rounds": _TREES,
    "chain_steps": _CHAIN,
    "wording": _CHAIN,
    "checker": Only(lambda config: config.task == "data", "the task data"),
    "clip_low": _CLIPPED,
    "clip_high": _CLIPPED,
    "keep_reference": Only(lambda config: config.kl_beta == 0, "a kl_beta of 0"),
    "kl_in": Only(lambda config: config.kl_beta > 0, "a kl_beta above 0"),
    "kl_estimator": _KL_IN_LOSS,
    "kl_target": Only(lambda config: config.kl_beta > 0, "a kl_beta above 0"),
    "kl_horizon": Only(lambda config: config.kl_target is not None, "kl_target"),
    "lora_alpha": Only(lambda config: config.lora_rank is not None, "lora_rank"),
}
"""By name of the setting; one that is not here always has an effect."""
