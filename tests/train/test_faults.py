"""Runs that are killed at a write, or have no room for it: once taken up they end as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from apportion.view.report import write_page
from faults import Work, command, full_from, in_child, killed_at, writes_of
from runs import TINY, train

PPO = {"recipe": "ppo", "steps": 2}
PARTS = 3
"""The writes of a run fall into so many parts, in each of which one is drawn that it is killed at."""


class Straight(NamedTuple):
    """A run that nothing happened to, and the writes that it took."""

    settings: dict[str, object]
    path: Path
    writes: list[str]


def begun(path: Path, settings: dict[str, object]) -> Work:
    return command("train", "--out", str(path), *(w for k, v in settings.items() for w in ("--set", f"{k}={v}")))


def taken_up(path: Path, settings: dict[str, object]) -> Work:
    """The run where it stands; begun anew where not even its settings are written down."""
    return command("train", "--resume", str(path)) if (path / "config.toml").exists() else begun(path, settings)


def uninterrupted(folder: Path, settings: dict[str, object]) -> Straight:
    settings = TINY | settings
    write_page(train(folder / "here", **settings).path)  # so that the children need not import all that it takes
    path = folder / "straight"
    return Straight(settings, path, writes_of(path, begun(path, settings)))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    return uninterrupted(tmp_path_factory.mktemp("runs"), PPO)


def assert_ended_alike(path: Path, straight: Straight) -> None:
    """The same files, with the same in them; a step that was killed behind its checkpoint may have no timings."""
    assert files_of(path) == files_of(straight.path)
    for name in files_of(path) - {"config.toml", "timings.jsonl", "report.html"}:
        if name.endswith("state.pt"):
            own, other = (plain(torch.load(run / name, weights_only=True)) for run in (path, straight.path))
            assert own == other, name
        else:
            assert (path / name).read_bytes() == (straight.path / name).read_bytes(), name


def plain(state: Any) -> Any:
    """With lists for tensors, and for tuples: what is loaded and saved again has lists."""
    if isinstance(state, dict):
        return {name: plain(entry) for name, entry in state.items()}
    if isinstance(state, list | tuple):
        return [plain(entry) for entry in state]
    return state.tolist() if isinstance(state, torch.Tensor) else state


def files_of(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def assert_survives(path: Path, straight: Straight, *kills: int) -> None:
    """Kill a run and what takes it up at these writes, and let the last end."""
    for number in kills:
        status, said = in_child(killed_at(number, path, taken_up(path, straight.settings)))
        assert status == signal.SIGKILL, (number, said)
    status, said = in_child(taken_up(path, straight.settings))
    assert status == 0, (kills, said)
    assert_ended_alike(path, straight)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_run_killed_at_a_write_and_killed_again_ends_as_if_it_had_not_been(
    tmp_path: Path, straight: Straight, part: int
) -> None:
    chance = Random(f"kills/{part}")
    first = (part + chance.random()) * len(straight.writes) / PARTS
    assert_survives(tmp_path / "killed", straight, int(first), chance.randrange(12))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["grpo", "ppo"])
def test_a_run_killed_at_any_write_ends_as_if_it_had_not_been(tmp_path: Path, recipe: str) -> None:
    straight = uninterrupted(tmp_path, {"recipe": recipe, "steps": 3})
    for number in range(len(straight.writes)):
        assert_survives(tmp_path / str(number), straight, number)


FULL = [
    ("/.config.toml.", "config.toml"),
    ("/.evaluations.json.", "evaluations.json"),
    ("/metrics.jsonl", "metrics.jsonl"),
    ("/.step-000000.jsonl.", "ledgers/step-000000.jsonl"),
    ("/step-000001.part", "checkpoints/step-000001"),
    ("/step-000001.part/state.pt", "checkpoints/step-000001"),
    ("/timings.jsonl", "timings.jsonl"),
    ("/metrics.jsonl", "metrics.jsonl"),
    ("/model.part", "model"),
    ("/.report.html.", "report.html"),
]
"""A write from which on the disk is full, and what cannot be written then. Each time the run has got a bit farther."""


def test_a_full_disk_is_said_in_one_line_and_the_run_goes_on_once_there_is_room(
    tmp_path: Path, straight: Straight
) -> None:
    path = tmp_path / "full"
    for write, name in FULL:
        status, said = in_child(full_from(write, path, taken_up(path, straight.settings)))
        assert os.waitstatus_to_exitcode(status) == 2, (write, said)
        [complaint] = [line for line in said.splitlines() if line.startswith("apportion: ")]
        assert complaint.startswith(f"apportion: {path / name}: could not be written: "), complaint
        assert "File too large" in complaint
        assert "Traceback" not in said
        assert not list(path.rglob("*.part")), write
        log = path / "metrics.jsonl"
        assert all(json.loads(row) for row in log.read_text().splitlines()) if log.exists() else name == "config.toml"
    assert_survives(path, straight)
