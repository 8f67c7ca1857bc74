"""TRL on two processes: groups lie across them, and every process has the credit of all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

from apportion.lint.report import lint_file
from apportion.view.source import read_answers

pytestmark = pytest.mark.host

WORKER = Path(__file__).parents[2] / "trl_worker.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, str(WORKER), str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def logged(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "logged.json").read_text())
    return found


def test_on_two_processes_the_losses_are_those_of_trl(runs: Path) -> None:
    stock, ours = logged(runs / "stock"), logged(runs / "grpo")
    assert len(stock) == 2
    for theirs, found in zip(stock, ours, strict=True):
        assert theirs["grad_norm"] > 0
        for name in ("loss", "grad_norm", "reward", "entropy"):
            assert found[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name


def test_on_two_processes_lines_are_credited_and_everything_holds(runs: Path) -> None:
    assert all(row["credit/steps"] > 1 for row in logged(runs / "vineppo"))
    watch = runs / "vineppo" / "watch"
    found = [json.loads(line) for line in (watch / "lint.jsonl").read_text().splitlines()]
    assert [row["batch"] for row in found] == [
        f"{kind}/step-{step:06d}" for step in (0, 1) for kind in ("batches", "losses")
    ]
    assert not any(row["broken"] for row in found)
    answers = read_answers(watch / "ledgers" / "step-000001.jsonl")
    assert [answer.group for answer in answers] == [str(number // 4) for number in range(12)]
    checks = {check.code: check.verdict for check in lint_file(watch / "losses" / "step-000001.npz", {}, {})}
    assert checks["reduction-differs"] == "holds"  # over both processes


def test_on_two_processes_every_value_is_that_of_its_own_continuations(runs: Path) -> None:
    for step in (0, 1):
        path = runs / "known" / "watch" / "ledgers" / f"step-{step:06d}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert len({tuple(row["prompt"]) for row in rows}) == 3
        for row in rows:
            line = row["ledger"]["step_of"].index(1)
            before = [sum(row["prompt"]) % 10, sum([*row["prompt"], *row["response"]][:line]) % 10]
            assert row["ledger"]["value"] == pytest.approx([digit / 10 for digit in before])
