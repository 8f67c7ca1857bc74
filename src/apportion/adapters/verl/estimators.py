"""Recipes as advantage estimators of verl: `algorithm.adv_estimator=apportion_RECIPE`.

verl calls an estimator with rewards, mask, its algorithm's config and the prompt of each row, and nothing else. What
needs text, token ids or values finds them where verl runs under `apportion.adapters.verl.trainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from apportion import normalise, recipes
from apportion.adapters.verl.batch import Laid, laid_alone, paid_by_token, paid_in_sum
from apportion.adapters.verl.handed import held
from apportion.adapters.verl.sessions import laid_as_handed
from apportion.errors import InputError
from apportion.ledger import Recipe, apportion
from apportion.steps import splitters
from apportion.values import baselines

Estimator = Callable[..., tuple[Tensor, Tensor]]
Make = Callable[[Any], Recipe]

PREFIX = "apportion_"
BLIND = (splitters.whole, splitters.every_token, splitters.turns)
"""Splitters that look at neither text nor token ids."""
TRAINER = "run it under trainer.v1.trainer_mode=apportion, which hands them over"


def estimator(name: str, make: Make) -> Estimator:
    """An estimator as verl calls it; `make` gives the recipe for verl's algorithm config (None where verl has none).

    It returns advantages, and as returns what was expected before a token's step plus the step's credit, which is what
    a critic is trained on. Both are 0 where verl's mask is.

    Raises InputError where verl lacks what the recipe needs.
    """

    def compute(
        token_level_rewards: Float[Tensor, "B R"],
        response_mask: Shaped[Tensor, "B R"],
        config: Any = None,
        index: Sequence[Hashable] | Any = None,
        **_: Any,
    ) -> tuple[Float[Tensor, "B R"], Float[Tensor, "B R"]]:
        recipe, handed = make(config), held()
        pay = paid_in_sum if recipe.split is splitters.whole else paid_by_token
        if handed is None:
            _refuse_without_trainer(name, recipe)
            groups = list(range(len(response_mask))) if index is None else list(index)
            if index is None and recipe.value in (baselines.group_mean, baselines.leave_one_out):
                raise InputError(f"{name} compares the answers to a prompt, and verl named no prompts: uid is missing")
            laid = laid_alone(token_level_rewards, response_mask.bool(), groups, pay)
        else:
            handed.wants_text |= recipe.split not in BLIND
            laid = laid_as_handed(token_level_rewards, handed, pay)
            _refuse_without_values(name, recipe, laid)
        if laid is None:
            return torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
        with torch.no_grad():
            ledger = apportion(laid.rollouts, recipe)
            returns = ledger.steps.to_tokens(ledger.credit + ledger.value)
        if handed is not None:
            handed.ledger = ledger
        kept = response_mask.bool()
        return torch.where(kept, laid.back(ledger.advantage), 0), torch.where(kept, laid.back(returns), 0)

    return compute


def register(name: str, make: Make) -> Estimator:
    """Register a recipe of your own as `adv_estimator=NAME`; where verl is, and before it is asked for.

    make: gives the recipe for verl's algorithm config. Put the call into a module that `VERL_USE_EXTERNAL_MODULES`
    names, and verl runs it in every process.
    """
    from verl.trainer.ppo import core_algos

    made = estimator(name, make)
    core_algos.register_adv_est(name)(made)
    return made


def all_of_them() -> dict[str, Estimator]:
    """Every recipe of the table below, under the name that verl knows it by."""
    return {PREFIX + name: estimator(PREFIX + name, make) for name, make in OF_VERL.items()}


grpo = replace(recipes.grpo(), normalise=partial(normalise.group_std_plus, eps=1e-6))
"""As verl works it out: advantage = (reward - mean) / (std + 1e-6)."""


def _plain(name: str) -> Make:
    """A recipe without settings; what verl was told and the recipe would not do is refused."""

    def make(config: Any) -> Recipe:
        gamma = _setting(config, "gamma", 1.0)
        if gamma != 1.0:
            raise InputError(f"{PREFIX}{name} has no discount, and algorithm.gamma is {gamma:g}; set it to 1.0")
        if name == "grpo" and not _setting(config, "norm_adv_by_std_in_grpo", True):
            raise InputError(f"algorithm.norm_adv_by_std_in_grpo=False is another recipe: choose {PREFIX}dr_grpo")
        return grpo if name == "grpo" else recipes.by_name(name)

    return make


def _ppo(config: Any) -> Recipe:
    return recipes.ppo(gamma=_setting(config, "gamma", 1.0), lam=_setting(config, "lam", 1.0))


OF_VERL: dict[str, Make] = {
    **{name: _plain(name) for name in ("reinforce", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus")},
    **{name: _plain(name) for name in ("grpo_process", "vineppo", "grpo_step")},
    "ppo": _ppo,
}
"""All of ours but `tree`: verl samples no branches."""


def _setting(config: Any, name: str, default: Any) -> Any:
    return default if config is None else config.get(name, default)


def _refuse_without_values(name: str, recipe: Recipe, laid: Laid | None) -> None:
    if recipe.value is baselines.given and laid is not None and laid.rollouts.step_values is None:
        raise InputError(
            f"{name} needs values, and none came: switch verl's critic on (critic.enable=True), or have the reward "
            "function return step_values (reward.reward_manager.name=apportion)"
        )


def _refuse_without_trainer(name: str, recipe: Recipe) -> None:
    lacking = []
    if recipe.value is baselines.given:
        lacking.append("values")
    if recipe.split not in BLIND:
        lacking.append("text")
    if lacking:
        raise InputError(f"{name} needs {' and '.join(lacking)}, which verl hands to no estimator; {TRAINER}")
