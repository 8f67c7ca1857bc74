"""Runs of several processes, real ones: they come to the numbers of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


PPO = ("--recipe", "ppo", "--steps", "2", "--set", "learning_rate=1e-3", "--set", "critic_ema=0.5")


SHARDED = ("--set", "sharded=true", "--set", "layout=packed")


def test_two_and_three_processes_and_shards_come_to_the_numbers_of_one(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", 1, *PPO)
    assert_alike(trained(tmp_path / "two", 2, *PPO), one)
    assert_alike(trained(tmp_path / "three", 3, *PPO), one)
    assert_alike(trained(tmp_path / "shards", 2, *PPO, *SHARDED), one)


@pytest.mark.parametrize(
    ("processes", "more"), [pytest.param(2, SHARDED, id="by-two-in-shards"), pytest.param(1, (), id="by-one")]
)
def test_a_run_of_two_processes_is_taken_up(tmp_path: Path, processes: int, more: tuple[str, ...]) -> None:
    settings = [*PPO[:2], *PPO[4:], *more]
    straight = trained(tmp_path / "straight", 2, *settings, "--steps", "2")
    out = tmp_path / "stopped"
    assert run(command(out, 2, *settings, "--steps", "1")).returncode == 0
    done = run(launch(processes, "--resume", str(out), "--steps", "2"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert_alike(rows(out), straight)


def test_what_one_process_refuses_all_refuse_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    done = run(command(tmp_path / "full", 2, "--steps", "1"))
    assert done.returncode != 0
    assert done.stderr.count("is not empty, and what is in it is not ours") == 1
