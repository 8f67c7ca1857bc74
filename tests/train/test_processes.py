"""Runs of several processes, real ones: they come to the numbers of one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import AcceleratorState

from apportion.train.config import resolve
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.train.start import open_run
from faults import Work, command, in_children
from runs import Silent

TINY = {"prompts": 3, "group": 4, "chain_steps": 2, "max_new_tokens": 24, "held_out": 4, "micro_batch": 4}


def words(out: Path, *more: str) -> list[str]:
    return ["train", "--out", str(out), *as_words(TINY), *more]


def as_words(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def by_torchrun(processes: int, *words: str) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*launcher, "-m", "apportion", *words], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


def by_forks(processes: int, *words: str) -> list[tuple[int, str]]:
    """Exit status and words of processes that were told what `torchrun` tells them, and need import nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def one(rank: int) -> Work:
        def run() -> None:
            AcceleratorState._reset_state(reset_partial_state=True)  # this process may have trained alone before
            about = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
            os.environ |= {name: str(number) for name, number in about.items()}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command(*words)()

        return run

    ended = in_children([one(rank) for rank in range(processes)])
    return [(os.waitstatus_to_exitcode(status), said) for status, said in ended]


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


PPO: dict[str, Any] = {
    "recipe": "ppo",
    "learning_rate": 1e-3,
    "critic_ema": 0.5,
    "normalise": "running",
    "kl_beta": 0.1,
    "kl_in": "reward",
    "replay_share": 0.2,
    "gradient_variance_every": 1,
}
SHARDED = ("--set", "sharded=true", "--set", "layout=packed")


def by_one(out: Path, steps: int) -> list[dict[str, Any]]:
    """The same run in this process alone."""
    Trainer(RunFolder.new(out), resolve(TINY | PPO | {"steps": steps}), Silent()).train()
    return rows(out)


def test_three_processes_come_to_the_numbers_of_one(tmp_path: Path) -> None:
    alone = by_one(tmp_path / "one", 2)
    for status, said in by_forks(3, *words(tmp_path / "three", *as_words(PPO), "--steps", "2")):
        assert status == 0, said
    assert_alike(rows(tmp_path / "three"), alone)


def test_a_run_of_two_processes_in_shards_comes_to_the_same_and_is_taken_up_by_one(tmp_path: Path) -> None:
    out = tmp_path / "shards"
    by_torchrun(2, *words(out, *as_words(PPO), *SHARDED, "--steps", "1"))
    text = (out / "config.toml").read_text().replace("sharded = true", "sharded = false")
    (out / "config.toml").write_text(text)
    Trainer(*open_run({"steps": 2}, None, out), Silent()).train()
    assert_alike(rows(out), by_one(tmp_path / "one", 2))


def test_what_one_process_refuses_all_refuse_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")
    (first, said), (second, nothing) = by_forks(2, *words(tmp_path / "full", "--steps", "1"))
    assert first == second == 2
    assert "is not empty, and what is in it is not ours" in said
    assert "apportion:" not in nothing
