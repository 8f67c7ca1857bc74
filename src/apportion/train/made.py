"""What a config asks for, made."""

from __future__ import annotations

from apportion.across import Across
from apportion.ledger import Recipe
from apportion.policy.causal import CausalPolicy
from apportion.recipes import by_name
from apportion.train.collect import begun_from
from apportion.train.config import TrainConfig
from apportion.train.effects import ONLY


def recipe_of(config: TrainConfig) -> Recipe:
    """The recipe, with the settings that it has."""
    settings = {"gamma": config.gamma, "lam": config.lam} if ONLY["lam"].holds(config) else {}
    return by_name(config.recipe, **settings)


def make_policy(config: TrainConfig, across: Across) -> CausalPolicy:
    """The policy, as it is to be trained."""
    policy = CausalPolicy.load(config.model)
    policy.across = across
    policy.bf16 = config.bf16
    if config.lora_rank is not None:
        with begun_from(config, "adapter"):
            policy.adapt(config.lora_rank, config.lora_alpha)
    if config.gradient_checkpointing:
        policy.keep_little()
    return policy
