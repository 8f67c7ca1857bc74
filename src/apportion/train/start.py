"""From what the user typed to a run: settings, folder, training, closing table."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from apportion.across import Across
from apportion.errors import InputError
from apportion.policy.causal import EMBEDDED
from apportion.train.config import TrainConfig, read_toml, resolve, with_effect
from apportion.train.display import Display
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder

Settings = dict[str, Any]

RUNS = Path("runs")


def settings_of(flags: Settings, assignments: Sequence[str], file: Path | None) -> Settings:
    """What the user set: flags stand above `--set KEY=VALUE`, and that above the file."""
    from_file = read_toml(file) if file else {}
    settings = from_file | dict(_assignment(text) for text in assignments) | flags
    for key in ("data", "model"):  # so that the run can be resumed from another folder
        if isinstance(settings.get(key), str) and settings[key] != EMBEDDED and Path(settings[key]).exists():
            settings[key] = str(Path(settings[key]).resolve())
    return settings


def open_run(settings: Settings, out: Path | None, resume: Path | None) -> tuple[RunFolder, TrainConfig]:
    """A new run folder, or the one to take up, with its config."""
    if resume is None:
        config = resolve(settings)
        return RunFolder.new(out or _fresh_folder(config)), config
    run = RunFolder.open(resume)
    changed = sorted(settings.keys() - {"steps", "token_budget"}) + (["out"] if out else [])
    if changed:
        raise InputError(
            f"--resume goes on with the settings of {resume}; only steps and token_budget may change, not "
            f"{', '.join(changed)}"
        )
    config = resolve(with_effect(run.config()) | settings)
    if run.steps_taken() > config.steps:
        raise InputError(
            f"{resume}: has taken {run.steps_taken()} steps already, more than the {config.steps} asked for"
        )
    return run, config


def train_run(run: RunFolder, config: TrainConfig, console: Console, across: Across) -> bool:
    """Train with a live display. False if asked to stop before the end."""
    about = f"{config.recipe} on {config.task}, model {config.model}, seed {config.seed}: {run.path}"
    console.print(about, highlight=False, soft_wrap=True, markup=False)
    with Display(console, config, first_step=run.steps_taken()) as display:
        return Trainer(run, config, display, across).train()


def _fresh_folder(config: TrainConfig) -> Path:
    name = f"{config.task.replace(':', '-')}-{config.recipe}-seed{config.seed}"
    names = (RUNS / (name if n == 1 else f"{name}-{n}") for n in count(1))
    return next(folder for folder in names if not folder.exists())


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text}: expected KEY=VALUE")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value  # a bare word is text
