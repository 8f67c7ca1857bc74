"""Runs of several processes, real ones: they come to the numbers of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apportion.train.config import resolve
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.train.start import open_run
from runs import Silent

TINY = {"prompts": 3, "group": 4, "chain_steps": 2, "max_new_tokens": 24, "held_out": 4, "micro_batch": 4}


def launch(processes: int, *words: str) -> list[str]:
    several = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    return [sys.executable, *(several if processes > 1 else []), "-m", "apportion", "train", *words]


def command(out: Path, processes: int, *more: str) -> list[str]:
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    return launch(processes, "--out", str(out), *settings, *more)


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)


def trained(out: Path, processes: int, *more: str) -> list[dict[str, Any]]:
    done = run(command(out, processes, *more))
    assert done.returncode == 0, done.stderr[-2000:]
    return rows(out)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def assert_alike(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert own.keys() == other.keys()
        for name, number in own.items():
            if name.startswith("mismatch"):
                continue  # rounding alone
            same = pytest.approx(other[name], rel=1e-4, abs=1e-5) if isinstance(number, float) else other[name]
            assert number == same, (own["step"], name)


ALONE = {"recipe": "ppo", "learning_rate": 1e-3, "critic_ema": 0.5}
PPO = ("--recipe", "ppo", "--set", "learning_rate=1e-3", "--set", "critic_ema=0.5")


SHARDED = ("--set", "sharded=true", "--set", "layout=packed")


def by_one(out: Path, steps: int) -> list[dict[str, Any]]:
    """The same run in this process alone."""
    Trainer(RunFolder.new(out), resolve(TINY | ALONE | {"steps": steps}), Silent()).train()
    return rows(out)


def test_three_processes_come_to_the_numbers_of_one(tmp_path: Path) -> None:
    assert_alike(trained(tmp_path / "three", 3, *PPO, "--steps", "2"), by_one(tmp_path / "one", 2))


def test_a_run_of_two_processes_in_shards_comes_to_the_same_and_is_taken_up_by_one(tmp_path: Path) -> None:
    out = tmp_path / "shards"
    trained(out, 2, *PPO, *SHARDED, "--steps", "2")
    text = (out / "config.toml").read_text().replace("sharded = true", "sharded = false")
    (out / "config.toml").write_text(text)
    Trainer(*open_run({"steps": 3}, None, out), Silent()).train()
    assert_alike(rows(out), by_one(tmp_path / "one", 3))


def test_what_one_process_refuses_all_refuse_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    done = run(command(tmp_path / "full", 2, "--steps", "1"))
    assert done.returncode != 0
    assert done.stderr.count("is not empty, and what is in it is not ours") == 1
