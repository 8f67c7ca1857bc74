"""What trackers are told, read back from what they wrote; nothing leaves the machine."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.train.start import open_run
from runs import Silent, train

Told = dict[int, dict[str, float]]
"""The numbers of each step."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def to_this_machine(own: socket.socket, address: Any) -> None:
        assert own.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "::1", "localhost"), address
        connect(own, address)

    monkeypatch.setattr(socket.socket, "connect", to_this_machine)


def taken_up(path: Path, tracker: str) -> RunFolder:
    """A run of three steps with a tracker, stopped after two of them and taken up again."""
    run = train(path, steps=2, trackers=[tracker])
    Trainer(*open_run({"steps": 3}, None, run.path), Silent()).train()
    return run


def assert_told(told: Told, run: RunFolder) -> None:
    """Every number of every step, under its name in the files of the run."""
    steps = zip(run.rows("metrics.jsonl"), run.rows("timings.jsonl"), strict=True)
    rows = {metrics["step"]: metrics | timings for metrics, timings in steps}
    assert told.keys() == rows.keys() == {0, 1, 2}
    for step, row in rows.items():
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float) and name != "step"}
        assert len(numbers) > 30
        assert {name: told[step].get(name) for name in numbers} == pytest.approx(numbers, rel=1e-6)


def test_the_figures_go_to_tensorboard(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = taken_up(tmp_path / "run", "tensorboard")
    folder = next(path.parent for path in run.path.rglob("events.out.*") if "hparams" not in path.name)
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    told: Told = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            told.setdefault(event.step, {})[name] = event.value
    assert_told(told, run)


def test_the_figures_go_to_wandb_and_a_run_that_is_taken_up_is_the_same_one_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = taken_up(tmp_path / "run", "wandb")
    told: Told = {}
    known_as, settings = set(), {}
    files = sorted(run.path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    for record in (record for file in files for record in until_written(file)):
        if record.HasField("history"):
            items = {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            told[items["_step"]] = items
        if record.HasField("run"):
            known_as.add((record.run.run_id, record.run.display_name, record.run.project))
        for changed in (record.config, record.run.config):
            settings |= {c.key: json.loads(c.value_json) for c in changed.update}
    assert_told(told, run)
    [(_, name, project)] = known_as
    assert (name, project) == ("run", "apportion")
    assert settings["recipe"] == "grpo"


def until_written(file: Path) -> list[Any]:
    """The records of an offline file, which a process of W&B's own writes, and may still be at."""
    deadline = time.monotonic() + 60
    while not (records := list(wandb_records(file))) or not records[-1].HasField("exit"):
        assert time.monotonic() < deadline, [record.WhichOneof("record_type") for record in records]
        time.sleep(0.05)
    return records


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline file: in blocks of 32 KiB, each part with a head of checksum, length and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts, block = file.read_bytes(), 7, b"", 2**15
    while at + 7 <= len(content):
        if block - at % block < 7:  # too little for a head
            at += block - at % block
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def test_the_figures_go_to_trackio_and_a_run_that_is_taken_up_is_the_same_one_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported, which nobody else does
    pytest.importorskip("trackio", minversion="0.43")
    run = taken_up(tmp_path / "run", "trackio")
    with sqlite3.connect(tmp_path / "trackio" / "apportion.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
        [(settings,)] = database.execute("SELECT config FROM configs").fetchall()
    database.close()
    assert_told({step: json.loads(metrics) for _, step, metrics in rows}, run)
    [name] = {name for name, _, _ in rows}
    assert name.startswith("run-")
    assert json.loads(settings)["recipe"] == "grpo"


def test_a_tracker_that_is_not_installed_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelerate.utils.imports.is_wandb_available", lambda: False)
    with pytest.raises(InputError, match="pip install wandb"):
        train(tmp_path / "run", steps=1, trackers=["wandb"])
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("no server")

    monkeypatch.setattr("accelerate.tracking.TensorBoardTracker.store_init_configuration", start)
    pytest.importorskip("tensorboard")
    with pytest.raises(InputError, match="tracker tensorboard could not be opened: no server"):
        train(tmp_path / "run", steps=1, trackers=["tensorboard"])
