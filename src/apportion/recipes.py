"""Published methods, each a row of one table. A new one is a short function here and an entry in `BY_NAME`.

| recipe              | split       | value            | credit       | normalise           | spread |
|---------------------|-------------|------------------|--------------|---------------------|--------|
| reinforce           | whole       | zero             | telescoping  | none                | repeat |
| grpo                | whole       | group mean       | telescoping  | group std           | repeat |
| dr_grpo             | whole       | group mean       | telescoping  | none                | repeat |
| rloo                | whole       | leave one out    | telescoping  | none                | repeat |
| reinforce_plus_plus | whole       | zero             | telescoping  | whiten              | repeat |
| grpo_process        | lines       | group mean to go | to go        | group increment std | repeat |
| vineppo             | lines       | given            | telescoping  | none                | repeat |
| tree                | branches    | answers through  | telescoping  | none                | repeat |
| grpo_step           | lines       | given            | telescoping  | group times step    | repeat |
| ppo                 | every token | given            | gae(1, 0.95) | whiten              | repeat |

A recipe with *given* values takes them from the rollouts (`step_values`); training puts Monte-Carlo values of its own
policy in their place, which is what VinePPO does. A value of every token is a critic's; `ppo` takes it from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from apportion import credit, ledger, normalise
from apportion.errors import InputError, did_you_mean
from apportion.ledger import Recipe
from apportion.rewards.mixing import AS_GIVEN, Bootstrapped
from apportion.steps import splitters, spread
from apportion.steps.branches import branches
from apportion.values import baselines
from apportion.values.answers import answers_through

TELESCOPING_LAWS = (ledger.conservation(), ledger.consistency, ledger.traceability, ledger.silence)


def reinforce() -> Recipe:
    """The bare outcome for every token. Source: Williams 1992; for language models arXiv:2402.14740."""
    return Recipe(
        name="reinforce",
        split=splitters.whole,
        value=baselines.zero,
        credit=credit.telescoping,
        normalise=normalise.none,
        spread=spread.repeat,
        laws=TELESCOPING_LAWS,
    )


def dr_grpo() -> Recipe:
    """The outcome over the group's mean, unscaled. Source: arXiv:2503.20783."""
    laws = (*TELESCOPING_LAWS, ledger.group_balance)
    return replace(reinforce(), name="dr_grpo", value=baselines.group_mean, laws=laws)


def grpo() -> Recipe:
    """The outcome over the group's mean, in units of the group's spread. Source: arXiv:2402.03300."""
    return replace(dr_grpo(), name="grpo", normalise=normalise.group_std)


def rloo() -> Recipe:
    """The outcome over the mean of the group's other answers. Source: arXiv:2402.14740."""
    return replace(dr_grpo(), name="rloo", value=baselines.leave_one_out)


def vineppo() -> Recipe:
    """Each line is worth what it changed the chance of success by. Source: arXiv:2410.01679."""
    return replace(reinforce(), name="vineppo", split=splitters.lines, value=baselines.given)


def tree() -> Recipe:
    """In a tree of answers each node is worth what it changed the mean outcome by, of all answers through it.

    Answers that share nothing but the prompt make it `dr_grpo`.
    """
    return replace(reinforce(), name="tree", split=branches, value=answers_through)


def reinforce_plus_plus() -> Recipe:
    """The outcome for every token, centred and scaled over the batch. Source: arXiv:2501.03262."""
    return replace(reinforce(), name="reinforce_plus_plus", normalise=normalise.whiten)


def grpo_process() -> Recipe:
    """What a line and all later ones earn over the group's mean line. Source: process supervision, arXiv:2402.03300."""
    return replace(
        reinforce(),
        name="grpo_process",
        split=splitters.lines,
        value=baselines.group_mean_to_go,
        credit=credit.to_go,
        normalise=normalise.group_increment_std,
        laws=(ledger.conservation(gamma=1.0, lam=1.0), ledger.silence),
    )


def grpo_step() -> Recipe:
    """The credit of each line, louder in answers that stand out in their group; no line changes sign."""
    return replace(vineppo(), name="grpo_step", normalise=normalise.group_times_step)


def ppo(*, gamma: float = 1.0, lam: float = 0.95) -> Recipe:
    """Generalised advantages of every token over a critic's values, bootstrapped where a rollout was cut off.

    Source: arXiv:1707.06347, arXiv:1506.02438.
    """
    return replace(
        reinforce(),
        name="ppo",
        reward=Bootstrapped(AS_GIVEN, gamma),
        split=splitters.every_token,
        value=baselines.given,
        credit=credit.gae_with(gamma=gamma, lam=lam),
        normalise=normalise.whiten,
        laws=(ledger.conservation(gamma=gamma, lam=lam), ledger.silence),
    )


BY_NAME: dict[str, Callable[..., Recipe]] = {
    "reinforce": reinforce,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "grpo_process": grpo_process,
    "vineppo": vineppo,
    "tree": tree,
    "grpo_step": grpo_step,
    "ppo": ppo,
}


def by_name(name: str, **settings: float) -> Recipe:
    """Make the recipe of that name, with settings that it has; an unknown name raises InputError with the nearest."""
    if name not in BY_NAME:
        raise InputError(f"there is no recipe {name!r}{did_you_mean(name, BY_NAME)}")
    return BY_NAME[name](**settings)
