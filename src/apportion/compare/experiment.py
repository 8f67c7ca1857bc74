"""The cheap control experiment: one advantage for the whole answer against step credit, from the same tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from apportion.across import ALONE
from apportion.compare.comparison import Comparison, compare
from apportion.errors import InputError
from apportion.train.config import resolve, with_effect
from apportion.train.run_folder import RunFolder
from apportion.train.start import open_run, train_run

Settings = dict[str, Any]

SHARED: Settings = {
    "chain_steps": 8,
    "wording": 0,
    "temperature": 1.3,
    "prompts": 8,
    "group": 8,
    "held_out": 512,
    "checkpoint_every": 50,
    "steps": 100_000,
}
ARMS: dict[str, Settings] = {
    "whole-answer": {"recipe": "grpo", "learning_rate": 1e-4},
    "step-credit": {
        "recipe": "vineppo",
        "learning_rate": 2e-4,
        "mc_samples": 1,
        "mc_boundaries": "refine:0.35",
        "mc_temperature_factor": 0.3,
    },
}
"""The best settings found for each (benchmarks/RESULTS.md), where a token anywhere may lead an answer astray."""


def run_credit(out: Path, seeds: int, tokens: int, changed: Mapping[str, Any], console: Console) -> Comparison:
    """Train both arms with each seed until they have generated so many tokens, and compare them.

    changed: settings of both arms, over those of `SHARED` and `ARMS`. Runs that are there already, finished, are not
    made again, and one that was stopped is taken up. Raises InputError for settings that make no sense.
    """
    made = [
        (out / f"{name}-seed{seed}", SHARED | arm | dict(changed) | {"seed": seed, "token_budget": tokens})
        for seed in range(seeds)
        for name, arm in ARMS.items()
    ]
    for _, settings in made:  # what is wrong shows before anything is trained
        resolve(settings)
    for folder, settings in made:
        _train(folder, settings, console)
    return compare([folder for folder, _ in made])


def _train(folder: Path, settings: Settings, console: Console) -> None:
    if not (folder / "config.toml").is_file():
        run, config = open_run(settings, folder, None)
    else:
        run = RunFolder.open(folder)
        _refuse_others(run, settings)
        if run.model.exists():
            return
        run, config = open_run({}, None, folder)
    train_run(run, config, console, ALONE)


def _refuse_others(run: RunFolder, settings: Settings) -> None:
    """Raise InputError where the folder holds a run with other settings."""
    known, wanted = with_effect(run.config()), with_effect(resolve(settings))
    if differ := sorted(name for name in known.keys() | wanted.keys() if known.get(name) != wanted.get(name)):
        raise InputError(f"{run.path}: holds a run with another {', '.join(differ)}; give another --out")
