"""Runs that are killed, stopped, taken up, damaged, or begun where another one is."""

import os
import signal

import pytest
from typer.testing import CliRunner

from apportion import cli
from apportion.errors import InputError
from apportion.train.config import resolve
from apportion.train.display import Display
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.train.start import open_run
from runs import TINY, Silent, train

RESUMED = [
    pytest.param({"recipe": "ppo", "critic_ema": 0.5, "critic_every": 2}, id="ppo"),
    pytest.param({"recipe": "ppo", "critic": "head"}, id="ppo-with-a-head"),
    pytest.param({"recipe": "ppo", "critic_warmup": 3}, id="ppo-before-the-policy-moves"),
    pytest.param({"lora_rank": 4, "kl_beta": 0.1}, id="lora"),
    pytest.param({"replay_share": 0.2, "gradient_variance_every": 2}, id="older-rollouts"),
    pytest.param(
        {"recipe": "vineppo", "values": "exact", "normalise": "running", "step_credit_from": 0.25}, id="running-moments"
    ),
    pytest.param({"recipe": "ppo", "kl_beta": 0.1, "kl_in": "reward"}, id="ppo-with-a-kl-in-the-reward"),
    pytest.param({"kl_beta": 0.1, "kl_target": 1e-4, "kl_horizon": 16.0, "entropy_floor": 0.99}, id="guards"),
]


@pytest.mark.parametrize("settings", RESUMED)
def test_whatever_a_run_goes_on_from_is_in_its_checkpoint(tmp_path, settings):
    settings = settings | {"learning_rate": 1e-3}
    straight = train(tmp_path / "straight", steps=4, **settings)
    stopped = train(tmp_path / "stopped", steps=2, **settings)
    Trainer(*open_run({"steps": 4}, None, stopped.path), Silent()).train()
    for name in ("metrics.jsonl", "evaluations.json"):
        assert (stopped.path / name).read_bytes() == (straight.path / name).read_bytes()


def test_a_finished_run_is_taken_up_for_more_steps_as_if_it_had_never_stopped(tmp_path):
    straight = train(tmp_path / "straight", steps=4)
    stopped = train(tmp_path / "stopped", steps=2)
    config = resolve(TINY | {"steps": 4})
    Trainer(RunFolder.open(stopped.path), config, Silent()).train()
    for name in ("metrics.jsonl", "evaluations.json"):
        assert (stopped.path / name).read_bytes() == (straight.path / name).read_bytes()


def test_a_row_cut_short_by_a_kill_is_dropped(tmp_path):
    run = train(tmp_path / "run", steps=2)
    whole = (run.path / "metrics.jsonl").read_bytes()
    (run.path / "metrics.jsonl").write_bytes(whole + b'{"step": 2, "outc')
    run.keep_steps_before(2)
    assert (run.path / "metrics.jsonl").read_bytes() == whole


def test_a_half_written_checkpoint_is_never_taken_up(tmp_path):
    run = train(tmp_path / "run", steps=2)
    (run.checkpoints / "step-000009.part").mkdir()
    folder, state = run.newest_checkpoint()
    assert (folder.name, state["step"]) == ("step-000002", 2)


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    run = train(tmp_path / "run", steps=0)
    with pytest.raises(InputError, match="holds a run already"):
        RunFolder.new(run.path)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "weights.bin").write_text("precious")
    with pytest.raises(InputError, match="is not empty"):
        RunFolder.new(tmp_path / "mine")
    assert (tmp_path / "mine" / "model" / "weights.bin").read_text() == "precious"


def test_of_two_runs_that_begin_in_one_folder_the_second_is_refused(tmp_path):
    first, second = RunFolder.new(tmp_path / "run"), RunFolder.new(tmp_path / "run")
    with first.begin(resolve(TINY)):
        pass
    with pytest.raises(InputError, match="another run has just begun"), second.begin(resolve(TINY)):
        pass


def test_a_run_that_was_killed_before_its_settings_were_written_leaves_a_folder_that_can_be_used(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    for name in (".lock", ".config.toml.123.part"):
        (path / name).touch()
    with RunFolder.new(path).begin(resolve(TINY)):
        assert {entry.name for entry in path.iterdir()} == {".lock", "config.toml", "checkpoints", "ledgers"}


def test_what_a_killed_run_leaves_is_cleared_away_and_nothing_else(tmp_path):
    run = train(tmp_path / "run", steps=2)
    there = sorted(run.path.rglob("*"))
    (run.checkpoints / "step-000001").mkdir()
    for name in ("checkpoints/step-000003.part", "model.part", "model.old.part"):
        (run.path / name).mkdir()
        (run.path / name / "weights").touch()
    for name in (".metrics.jsonl.123.part", "ledgers/.step-000002.jsonl.123.part"):
        (run.path / name).touch()
    (run.path / "mine").mkdir()
    (run.path / "mine" / "song.part").touch()
    with RunFolder.open(run.path).begin(run.config()):
        pass
    assert sorted(run.path.rglob("*")) == sorted([*there, run.path / "mine", run.path / "mine" / "song.part"])


def test_a_run_that_another_process_is_at_is_not_taken_up(tmp_path):
    run = train(tmp_path / "run", steps=1)
    again = RunFolder.open(run.path)
    with run.begin(run.config()), pytest.raises(InputError, match="another process"), again.begin(run.config()):
        pass
    Trainer(again, run.config(), Silent()).train()
    assert len(run.rows("metrics.jsonl")) == 1


def test_a_run_is_not_resumed_to_fewer_steps_than_it_took(tmp_path):
    run = train(tmp_path / "run", steps=2)
    with pytest.raises(InputError, match="has taken 2 steps already"):
        open_run({"steps": 1}, None, run.path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        pytest.param("checkpoints/step-000001/state.pt", b"cut short", "checkpoint is damaged", id="state"),
        pytest.param("checkpoints/step-000001/model.safetensors", b"{", "could not be loaded", id="weights"),
        pytest.param("metrics.jsonl", b"no json\n", "no row of a log", id="log"),
        pytest.param("evaluations.json", b"{", "evaluations.json: not JSON", id="evaluations"),
        pytest.param("config.toml", b"recipee = 'grpo'", "did you mean 'recipe'", id="settings"),
    ],
)
def test_a_damaged_run_is_refused_by_the_name_of_the_file(tmp_path, name, content, words):
    run = train(tmp_path / "run", steps=1)
    (run.path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        Trainer(*open_run({"steps": 2}, None, run.path), Silent()).train()


def test_a_run_that_is_asked_to_stop_finishes_its_step_and_can_be_taken_up(tmp_path, monkeypatch):
    real = Display.stepped

    def stepped(display, metrics, timings):
        if metrics["step"] == 1:  # it has been saved already; the step after it is to be finished
            os.kill(os.getpid(), signal.SIGTERM)
        real(display, metrics, timings)

    monkeypatch.setattr(Display, "stepped", stepped)
    stopped = tmp_path / "stopped"
    settings = [*(part for key in TINY for part in ("--set", f"{key}={TINY[key]}")), "--set", "checkpoint_every=1000"]
    done = CliRunner().invoke(cli.app, ["train", "--steps", "5", *settings, "--out", str(stopped)])
    assert (done.exit_code, done.exception) == (0, None)
    assert f"to go on: apportion train --resume {stopped}" in done.output.replace("\n", "")
    assert RunFolder.open(stopped).steps_taken() == len(RunFolder.open(stopped).rows("metrics.jsonl")) == 3
    monkeypatch.undo()
    assert Trainer(*open_run({}, None, stopped), Silent()).train()
    straight = train(tmp_path / "straight", steps=5, checkpoint_every=1000)
    assert (stopped / "metrics.jsonl").read_bytes() == (straight.path / "metrics.jsonl").read_bytes()


def test_a_full_disk_is_said_in_one_line(tmp_path):
    run = RunFolder.new(tmp_path / "run")

    def save(folder):
        raise RuntimeError("unexpected pos 64 vs 0\nand more")

    with run.begin(resolve(TINY)), pytest.raises(InputError, match=r"could not be written: unexpected pos 64 vs 0$"):
        run.save_checkpoint(1, {}, save)
    assert run.newest_checkpoint() is None
