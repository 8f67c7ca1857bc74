"""The settings of a training run: one flat table, written as TOML.

Defaults are those for models of ordinary size; `EMBEDDED` overlays them when the embedded model is trained. What the
user sets stands above both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apportion.errors import InputError, did_you_mean
from apportion.losses import REDUCTIONS
from apportion.normalise import BY_NAME as NORMALISERS
from apportion.policy.causal import EMBEDDED as EMBEDDED_MODEL
from apportion.recipes import BY_NAME
from apportion.train.contradictions import refuse_contradictions
from apportion.train.effects import ONLY, bootstraps
from apportion.values import boundaries

RUNNING = "running"
"""The normalisation that goes on from step to step."""


class TrainConfig(BaseModel):
    """Every setting of `apportion train`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    recipe: str = Field("grpo", description="method of credit, by name")
    model: str = Field(EMBEDDED_MODEL, description="`embedded`, a Hugging Face folder, or a GGUF file")
    seed: int = Field(0, ge=0, description="all chance in a run follows from it")
    steps: int = Field(70, ge=0, description="updates of the policy")
    token_budget: int | None = Field(
        None, ge=1, description="end with the step in which so many tokens are generated, continuations and all"
    )

    task: str = Field("chain", description="`chain` (embedded), `data` (needs `data`), or `gym:NAME` (reasoning-gym)")
    data: str | None = Field(None, description="JSONL of prompts and answers, for the task `data`")
    checker: str = Field("math_equal", description="judge of answers to `data`: a name, or `module:function`")
    judge_timeout: float = Field(60.0, gt=0, description="seconds that the judge may take over an answer")
    chain_steps: int = Field(5, ge=2, description="steps of a problem of the task `chain`")
    wording: int = Field(2, ge=0, description="free letters at the head of each line of the task `chain`")
    held_out: int | None = Field(
        None, ge=0, description="held-out problems to test on before and after; not set = 64, or a tenth of `data`"
    )

    prompts: int = Field(8, ge=1, description="prompts a step")
    group: int = Field(6, ge=1, description="answers sampled for each prompt")
    first_answers: int | None = Field(
        None,
        ge=1,
        description="answers sampled first for each prompt; what is left of prompts * group is then dealt out, most to "
        "those that failed most; not set = `group` for all",
    )
    max_new_tokens: int = Field(256, ge=1, description="longest answer, in tokens")
    temperature: float = Field(0.7, gt=0, description="of sampling, and of all log-probabilities")
    top_p: float = Field(0.9, gt=0, le=1, description="most probable mass that tokens are drawn from")
    gamma: float = Field(1.0, gt=0, le=1, description="discount, a sampled token, where a recipe has one")
    lam: float = Field(0.95, ge=0, le=1, description="decay of its generalised advantages, a sampled token")
    values: Literal["monte_carlo", "likelihood", "exact", "critic"] = Field(
        "monte_carlo",
        description="where a recipe needs values given: by continuing prefixes, by how likely the reference answer is, "
        "worked out (task `chain`), or by a critic that learns beside the policy",
    )
    mc_samples: int = Field(6, ge=1, description="continuations of each prefix, for values `monte_carlo`")
    mc_error: float | None = Field(
        None, gt=0, lt=0.5, description="standard error to sample each prefix to, instead of `mc_samples` for all"
    )
    mc_boundaries: str = Field(
        "every", description=f"steps that are valued so, the others from these: {', '.join(boundaries.NAMES)}"
    )
    mc_best_share: float = Field(
        1.0, gt=0, le=1, description="share of each group, the best, that is credited by steps; the rest by outcome"
    )
    mc_budget: int | None = Field(None, ge=1, description="tokens that continuations may have in a step, at most")
    mc_temperature_factor: float = Field(1.1, gt=0, description="their temperature, in units of `temperature`")
    check_values_every: int | None = Field(
        None, ge=1, description="steps between checks of the values before steps against continuations; not set = never"
    )
    check_prefixes: int = Field(32, ge=1, description="prefixes that such a check continues")
    check_samples: int = Field(4, ge=2, description="continuations of each of them")
    tree_roots: int = Field(
        4, ge=1, description="answers of a group that start at the prompt, where a recipe grows trees"
    )
    tree_forks: Literal["even", "entropy", "uncertainty"] = Field(
        "even", description="lines that the other answers leave them at: spread evenly, least foreseen, least known"
    )
    tree_rounds: int = Field(
        1, ge=1, description="times that a tree is branched; later ones can leave earlier branches"
    )

    normalise: str | None = Field(
        None,
        description=f"how credit is scaled: {', '.join(NORMALISERS)}, or {RUNNING} (whitened by all credit of the run "
        "so far); not set = as the recipe has it",
    )
    step_credit_from: float = Field(
        0.0, ge=0, le=1, description="share of the run in which the outcome alone decides, before steps are credited"
    )
    step_credit_full: float | None = Field(
        None, gt=0, le=1, description="share at which steps alone decide, evenly approached; not set = from then on"
    )
    outcome_recipe: str = Field("grpo", description="recipe of the credit by outcome, where the outcome decides")

    critic: Literal["own", "head"] = Field(
        "own", description="a model of its own, or a head on the policy's trunk, which it does not move"
    )
    critic_learning_rate: float | None = Field(None, gt=0, description="of its AdamW; not set = half the policy's")
    critic_every: int = Field(1, ge=1, description="steps between updates of the critic")
    critic_updates: int = Field(4, ge=1, description="updates of the critic in such a step, each with its share of it")
    critic_warmup: int = Field(0, ge=0, description="first steps in which the critic learns and the policy does not")
    critic_ema: float = Field(
        0.0, ge=0, lt=1, description="share of its old weights that the critic that is asked keeps at an update"
    )
    critic_clip: float | None = Field(
        0.2, gt=0, description="values are pushed no farther than this from those that the credit used"
    )
    critic_lam: float = Field(1.0, ge=0, le=1, description="decay in the returns that the critic learns")

    learning_rate: float = Field(5e-6, gt=0, description="of AdamW")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="longer gradients are cut to this length")
    updates: int = Field(1, ge=1, description="updates on each batch of rollouts, each with its share of it")
    micro_batch: int = Field(8, ge=1, description="rollouts in one forward and backward pass")
    clip_low: float = Field(0.2, gt=0, lt=1, description="the probability ratio is clipped below 1 - this")
    clip_high: float = Field(0.2, gt=0, description="and above 1 + this")
    replay_share: float = Field(
        0.0, ge=0, le=0.2, description="most of what is trained on in a step that may be rollouts of earlier steps"
    )
    replay_steps: int = Field(4, ge=1, description="steps that such rollouts are kept for")
    reduction: str = Field(
        "token_mean", description=f"weight of a token in the loss: {', '.join(REDUCTIONS)}, fixed_divisor"
    )
    layout: Literal["prompts_once", "packed", "padded"] = Field(
        "prompts_once",
        description="rollouts in a pass: what they begin alike with read once, several to a row, or a row each",
    )
    lora_rank: int | None = Field(None, ge=1, description="train a LoRA adapter of this rank; not set = all weights")
    lora_alpha: int = Field(32, gt=0, description="its scale, over the rank")
    bf16: bool = Field(False, description="compute in bfloat16; weights, losses and log-probabilities stay float32")
    gradient_checkpointing: bool = Field(
        False, description="find once more on the way back what layers found, instead of keeping it"
    )
    sharded: bool = Field(False, description="split weights, gradients and optimiser over the processes (FSDP2)")
    kl_beta: float = Field(0.002, ge=0, description="weight of the KL to the starting model")
    kl_in: Literal["loss", "reward"] = Field(
        "loss", description="where it is: a term of the loss, or taken from the reward of every token (by k1)"
    )
    keep_reference: bool = Field(
        True, description="keep the starting model for KL and entropy in the figures, though the loss needs no KL"
    )
    kl_target: float | None = Field(None, gt=0, description="move kl_beta so that the KL a token comes to this")
    kl_horizon: float = Field(10_000, gt=0, description="answers in which kl_beta may move by a fifth of itself")
    kl_estimator: Literal["k2", "k3"] = Field("k3", description="estimator of the KL in the loss")
    entropy_bonus: float = Field(0.01, ge=0, description="weight of the entropy, in the loss")

    entropy_floor: float = Field(
        0.6, ge=0, lt=1, description="under this share of the starting model's entropy the policy term is halved"
    )
    deployment_temperature: float | None = Field(
        None, ge=0, description="temperature that the policy will be used at; another one than `temperature` is told"
    )

    gradient_variance_every: int | None = Field(
        None,
        ge=1,
        description="steps between looks at how far the gradient strays from prompt to prompt, against that of the "
        "outcome alone; not set = never",
    )
    checkpoint_every: int = Field(1, ge=1, description="steps between checkpoints")
    trackers: list[Literal["tensorboard", "wandb", "trackio"]] = Field(
        [], description="where the figures of every step go as well: tensorboard, wandb, trackio"
    )
    ledger_every: int = Field(10, ge=1, description="steps between saved ledgers")
    threads: int = Field(0, ge=0, description="CPU threads; 0 = one for models under 10 M parameters, else all")

    @property
    def tests(self) -> int:
        """Held-out problems to test on."""
        return 64 if self.held_out is None else self.held_out


EMBEDDED: dict[str, Any] = {
    "held_out": 512,
    "prompts": 32,
    "group": 8,
    "max_new_tokens": 96,
    "temperature": 1.0,
    "top_p": 1.0,
    "mc_samples": 4,
    "learning_rate": 3e-4,
    "micro_batch": 128,
    "kl_beta": 0.0,
    "entropy_bonus": 0.0,
    "gradient_variance_every": 10,
}
"""Defaults for the embedded model: small enough for large batches and long steps."""


def resolve(settings: dict[str, Any], *, place: str = "settings") -> TrainConfig:
    """Make the config of a run from what the user set.

    Raises InputError naming the key, what came and what was expected; for an unknown key, the nearest one.
    """
    for key in settings:
        if key not in TrainConfig.model_fields:
            raise InputError(f"{place}: there is no setting {key!r}{did_you_mean(key, TrainConfig.model_fields)}")
    if settings.get("data") is not None:
        settings = {"task": "data"} | settings
    small = EMBEDDED if settings.get("model", EMBEDDED_MODEL) == EMBEDDED_MODEL else {}
    if settings.get("task", "chain") != "chain":  # others may not hold so many problems
        small = {name: value for name, value in small.items() if name != "held_out"}
    try:
        config = TrainConfig(**(small | settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{place}: {key} is {first['input']!r}; {first['msg'].lower()}") from error
    boundaries.by_name(config.mc_boundaries)
    for key, name in {"recipe": config.recipe, "outcome_recipe": config.outcome_recipe}.items():
        _refuse_unknown(key, name, BY_NAME)
    if config.normalise is not None:
        _refuse_unknown("normalise", config.normalise, [*NORMALISERS, RUNNING])
    _refuse_unknown("reduction", config.reduction, [*REDUCTIONS, "fixed_divisor"])
    if bootstraps(config) and "values" not in settings:
        config = config.model_copy(update={"values": "critic"})
    refuse_contradictions(config, place)
    for key in settings:
        if key in ONLY and not ONLY[key].holds(config):
            raise InputError(f"{place}: {key} has no effect here; it is for {ONLY[key].when}")
    return config


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read settings from a TOML file."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not a TOML file ({error})") from error


def to_toml(config: TrainConfig) -> str:
    """Write every setting with its meaning, ready to be read again; those without effect as comments."""
    import tomli_w

    lines = []
    for name, about in TrainConfig.model_fields.items():
        value = getattr(config, name)
        setting = f"{name} =" if value is None else tomli_w.dumps({name: value}).strip()
        idle = name in ONLY and not ONLY[name].holds(config)
        mark, why = ("# ", f" (for {ONLY[name].when})") if idle else ("# " if value is None else "", "")
        lines.append(f"{mark}{setting}  # {about.description}{why}")
    return "\n".join(lines) + "\n"


def with_effect(config: TrainConfig) -> dict[str, Any]:
    """The settings that have an effect, as `resolve` takes them."""
    idle = {name for name, only in ONLY.items() if not only.holds(config)}
    return config.model_dump(exclude_none=True, exclude=idle)


def _refuse_unknown(key: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InputError(f"there is no {key} {name!r}{did_you_mean(name, known)}")
