"""The example, run as it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

from apportion.view.source import read_answers

pytestmark = pytest.mark.host

EXAMPLE = Path(__file__).parents[3] / "examples" / "trl_lines.py"


def test_the_example_credits_lines_and_its_batches_pass_lint(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    watch = tmp_path / "trl-lines" / "watch"
    rows = [json.loads(line) for line in (watch / "lint.jsonl").read_text().splitlines()]
    assert [row["batch"] for row in rows] == [
        f"{kind}/step-{step:06d}" for step in (0, 2) for kind in ("batches", "losses")
    ]
    assert not any(row["broken"] for row in rows)
    answers = read_answers(watch / "ledgers" / "step-000002.jsonl")
    assert all(len(answer.steps["credit"] or []) > 1 for answer in answers)
