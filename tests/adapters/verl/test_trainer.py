"""Inside verl's trainer v1, on a CPU: its own methods on a queue in this process, and once on its real one."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl names every engine that is not installed
    pytest.importorskip("verl", reason="verl is not installed: make test-verl runs these in an environment of its own")
    from verl.trainer.ppo.v1 import get_trainer_cls

from apportion import InputError, files, lint
from verl_queue import REJECTION, critic_batch, on_actions, output, rejected, run_trainer, trainer_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "verl.md"
ALONE = ["actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=1"]
ALONE += ["actor_rollout_ref.rollout.checkpoint_engine.backend=nccl", "data.train_batch_size=1024"]
"""What verl asks of its config where rollouts have machines of their own."""
REAL_QUEUE = """
import ray, transfer_queue as queue
from verl_queue import output, trainer_of
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

ray.init(num_cpus=8, include_dashboard=False, object_store_memory=100 * 2**20)
queue.init()
values = {"apportion_step_values": "[0.5, 0.25, 0.75]"}
rows = dict([output("p_0_0", "a\\nb\\nc", score=1.0, info=values), output("p_1_0", "d\\ne\\nf", info=values)])
fields = list_of_dict_to_tensordict(list(rows.values()))
meta = queue.kv_batch_put(keys=list(rows), partition_id="train", fields=fields, tags=[{}, {}])
trainer_of("apportion", "algorithm.adv_estimator=apportion_vineppo")._compute_advantage(meta, {})
found = queue.kv_batch_get(keys=list(rows), partition_id="train", select_fields=["advantages"])
print("FOUND", [row.tolist() for row in found["advantages"].unbind()])
"""


# --- verl's order: rejection first, credit second ---------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["reinforce_plus_plus", "gae"])
def test_verls_own_estimators_lose_an_outcome_whose_token_was_rejected(monkeypatch, estimator):
    found = run_trainer(monkeypatch, "sync", rejected(True), f"algorithm.adv_estimator={estimator}", *REJECTION)
    assert found.column("response_mask") == [[1.0, 1.0, 0.0]] * 2
    assert bool((on_actions(found, "advantages").view(2, 2).diff(dim=0) == 0).all())  # right or wrong, the same


@pytest.mark.parametrize("mode", ["sync", "apportion"])
@pytest.mark.parametrize("recipe", ["reinforce_plus_plus", "dr_grpo", "reinforce"])
def test_ours_keep_it_under_verls_trainer_and_ours(monkeypatch, mode, recipe):
    found = run_trainer(monkeypatch, mode, rejected(), f"algorithm.adv_estimator=apportion_{recipe}", *REJECTION)
    right, wrong = found.column("advantages")
    assert found.column("response_mask") == [[1.0, 1.0, 0.0]] * 2
    assert right[0] == right[1] > wrong[0] == wrong[1]
    assert right[2] == wrong[2] == 0.0


def test_ours_keeps_it_with_a_critic_and_credits_as_if_nothing_had_been_rejected(monkeypatch):
    settings = ["algorithm.adv_estimator=apportion_ppo", "critic.enable=True"]
    found = run_trainer(monkeypatch, "apportion", rejected(True), *settings, *REJECTION)
    whole = run_trainer(monkeypatch, "apportion", rejected(True), *settings)
    assert found.column("advantages") == [[*row[:2], 0.0] for row in whole.column("advantages")]
    assert found.column("advantages")[0][0] > 0 > found.column("advantages")[1][0]


# --- the trainer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_our_trainers_are_verls_and_buffer_as_they_do(mode):
    ours = get_trainer_cls("apportion" if mode == "sync" else f"apportion_{mode}")
    assert issubclass(ours, get_trainer_cls(mode))
    more = ALONE if mode == "separate_async" else []
    trainer, stock = trainer_of("apportion" if mode == "sync" else f"apportion_{mode}", *more), trainer_of(mode, *more)
    assert trainer.trainer_mode == mode
    assert type(trainer.replay_buffer) is type(stock.replay_buffer)


def test_lines_are_credited_under_the_trainer_and_refused_without(monkeypatch):
    def rows():
        first, second = ({"apportion_step_values": said} for said in ("[0.5, 0.25, 0.75]", "[0.5, 0.5, 0.0]"))
        return [output("p_0_0", "a\nb\nc", score=1.0, info=first), output("p_1_0", "a\nbb\nc", info=second)]

    found = run_trainer(monkeypatch, "apportion", rows(), "algorithm.adv_estimator=apportion_vineppo")
    assert found.column("advantages") == [[-0.25, -0.25, 0.5, 0.5, 0.25], [0.0, 0.0, -0.5, -0.5, -0.5, 0.0]]
    assert found.column("returns")[0] == [0.25, 0.25, 0.75, 0.75, 1.0]
    with pytest.raises(InputError, match="trainer_mode=apportion"):
        run_trainer(monkeypatch, "sync", rows(), "algorithm.adv_estimator=apportion_vineppo")


def test_a_session_of_several_outputs_is_one_answer_as_in_verls_grpo(monkeypatch):
    def rows():
        return [
            output("p_0_0", "ab", score=1.0),
            output("p_1_0", "c"),
            output("p_0_1", "d", score=1.0),
            output("p_2_0", "ab"),
        ]

    settings = "algorithm.norm_adv_by_std_in_grpo=False"
    theirs = run_trainer(monkeypatch, "sync", rows(), "algorithm.adv_estimator=grpo", settings)
    ours = run_trainer(monkeypatch, "apportion", rows(), "algorithm.adv_estimator=apportion_dr_grpo", settings)
    alone = run_trainer(monkeypatch, "sync", rows(), "algorithm.adv_estimator=apportion_dr_grpo", settings)
    assert torch.allclose(on_actions(ours, "advantages"), on_actions(theirs, "advantages"), atol=1e-6)
    assert not torch.allclose(on_actions(alone, "advantages"), on_actions(theirs, "advantages"), atol=1e-2)


def test_rows_that_verl_fills_up_with_get_nothing_and_move_nothing(monkeypatch):
    rows = [*rejected(), output("pad7_0_0", "a", mask=[0])]
    estimator = "algorithm.adv_estimator=apportion_reinforce_plus_plus"
    padded = run_trainer(monkeypatch, "apportion", rows, estimator, padding={"pad7_0_0"})
    plain = run_trainer(monkeypatch, "apportion", rejected(), estimator)
    assert padded.column("advantages") == [*plain.column("advantages"), [0.0]]


def test_a_kl_penalty_in_the_reward_is_in_our_credit_too(monkeypatch):
    def rows():
        made = critic_batch()
        for _, row in made:
            row["ref_log_prob"] = row["old_log_probs"] - 0.25
        return made

    settings = ["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.5", "critic.enable=True"]
    ours = run_trainer(monkeypatch, "apportion", rows(), "algorithm.adv_estimator=apportion_ppo", *settings)
    theirs = run_trainer(monkeypatch, "sync", rows(), "algorithm.adv_estimator=gae", *settings)
    assert torch.allclose(on_actions(ours, "returns"), on_actions(theirs, "returns"), atol=1e-6)
    assert "token_level_rewards" in ours.rows["p_0_0"]


def test_every_so_many_batches_the_trainer_captures_one_and_the_linter_passes_it(monkeypatch, tmp_path):
    where = ["+apportion.capture_every=1", f"+apportion.capture_dir={tmp_path}"]
    settings = ["algorithm.adv_estimator=apportion_ppo", "critic.enable=True", *REJECTION]
    run_trainer(monkeypatch, "apportion", rejected(True), *settings, *where)
    verdicts = {found.code: found.verdict for found in lint.lint(dict(numpy.load(tmp_path / "step1.npz")))}
    assert "broken" not in verdicts.values()
    assert verdicts["reward-lost"] == verdicts["credit-differs"] == "holds"
    assert files.load(tmp_path / "step1.jsonl").texts[0] == "ababc"


@pytest.mark.parametrize("estimator", ["reinforce_plus_plus", "gae"])
def test_a_captured_batch_of_verls_own_shows_the_lost_outcome(monkeypatch, tmp_path, estimator):
    where = ["+apportion.capture_every=1", f"+apportion.capture_dir={tmp_path}"]
    run_trainer(monkeypatch, "apportion", rejected(True), f"algorithm.adv_estimator={estimator}", *REJECTION, *where)
    broken = {f.code: f.said for f in lint.lint(dict(numpy.load(tmp_path / "step1.npz"))) if f.verdict == "broken"}
    assert "lost" in broken["reward-unsampled"]


def test_no_batch_is_captured_unless_asked_for(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run_trainer(monkeypatch, "apportion", rejected(), "algorithm.adv_estimator=apportion_dr_grpo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_trainer_reads_and_writes_verls_real_queue():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}){REAL_QUEUE}"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert "FOUND [[-0.25, -0.25, 0.5, 0.5, 0.25], [-0.25, -0.25, 0.5, 0.5, -0.75]]" in ran.stdout, ran.stderr


def test_the_page_shows_what_the_linter_says_of_verls_credit_and_of_ours(monkeypatch, tmp_path):
    shown = [block.splitlines() for block in re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.S)]
    assert len(shown) == 2
    for estimator, lines in zip(("gae", "apportion_ppo"), shown, strict=True):
        where = ["+apportion.capture_every=1", f"+apportion.capture_dir={tmp_path / estimator}"]
        settings = [f"algorithm.adv_estimator={estimator}", "critic.enable=True", *REJECTION]
        run_trainer(monkeypatch, "apportion", rejected(True), *settings, *where)
        said = [str(found) for found in lint.lint(dict(numpy.load(tmp_path / estimator / "step1.npz")))]
        assert set(lines) <= set(said)
        assert {line for line in said if ": broken: " in line} <= set(lines)
