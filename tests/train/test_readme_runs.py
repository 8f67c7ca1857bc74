"""The README's training commands are run as written, only smaller, and leave the folder that it describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli
from apportion.cli import training

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = [line.partition("#")[0].split()[1:] for line in re.findall(r"^apportion train.*$", README, re.MULTILINE)]
SMALLER = {
    "steps": 2,
    "prompts": 2,
    "group": 2,
    "chain_steps": 2,
    "max_new_tokens": 24,
    "held_out": 4,
}
OF_RECIPE = {"vineppo": {"mc_samples": 1}, "tree": {"tree_roots": 1}}


def test_the_training_commands_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "console", Console(width=120, force_terminal=False))
    # the model of another maker that one command names is trained in test_real_models.py
    commands = [command for command in COMMANDS if not any(word.endswith(".gguf") for word in command)]
    assert len(commands) == len(COMMANDS) - 1 >= 4

    for command in commands:
        words = command if "--resume" in command else [*without_steps(command), *smaller(command)]
        done = CliRunner().invoke(cli.app, words)
        assert done.exit_code == 0, (command, done.exception)

    described = re.findall(r"`([\w.]+/?)`(?:, `([\w.]+/?)`)? \|", README)
    names = {name.rstrip("/") for pair in described for name in pair if "." in name or name.endswith("/")}
    run = tmp_path / "runs" / "chain-grpo-seed0"
    assert names == {path.name for path in run.iterdir() if not path.name.startswith(".")}


def without_steps(command: list[str]) -> list[str]:
    if "--steps" not in command:
        return command
    place = command.index("--steps")
    return command[:place] + command[place + 2 :]


def smaller(command: list[str]) -> list[str]:
    more = next((settings for recipe, settings in OF_RECIPE.items() if recipe in command), {})
    return [word for key, value in (SMALLER | more).items() for word in ("--set", f"{key}={value}")]
