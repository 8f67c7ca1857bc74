"""What is captured of a batch of verl, and what `apportion lint` and `apportion view` make of it."""

from __future__ import annotations

import json

import numpy
import pytest
import torch
from typer.testing import CliRunner

from apportion import InputError, files, lint
from apportion.adapters.verl.capture import Capture
from apportion.adapters.verl.estimators import all_of_them
from apportion.adapters.verl.handed import holding
from apportion.cli import app
from verl_queue import handed_from, output

CRITIC = [
    output("p_0_0", "abc", score=1.0, values=[0.5, 0.25, 0.75]),
    output("p_1_0", "ab", values=[0.5, 0.5]),
    output("q_0_0", "abcd", mask=[1, 0, 1, 1], score=0.5, values=[0.25, 9.0, 0.5, 0.5]),
    output("pad_0_0", "a", mask=[0], values=[0.0]),
]


def take(tmp_path, outputs, config, *, credit=None, mask=None):
    """Capture a batch of ours, or with `credit` one of verl's own as its actor gets it."""
    handed = handed_from(outputs, padding={"pad_0_0"})
    handed.wants_text = True
    seen = {}
    if credit is None:
        with holding(handed):
            all_of_them()[config["adv_estimator"]](handed.scores, handed.mask.long(), config=config)
    else:
        seen = {"advantages": credit, "returns": credit, "response_mask": handed.mask.long() if mask is None else mask}
    return Capture(1, tmp_path).take(handed, seen, config, 7)


def findings(path, verdict="broken"):
    return {found.code: found.said for found in lint.lint(dict(numpy.load(path))) if found.verdict == verdict}


def test_batches_are_due_every_so_often_or_never():
    assert [step for step in range(7) if Capture(3).due(step)] == [0, 3, 6]
    assert not any(Capture().due(step) for step in range(7))


def test_it_is_set_on_verls_command_line():
    assert Capture.of({"apportion": {"capture_every": 10, "capture_dir": "here"}}) == Capture(
        10, files.storage.Path("here")
    )
    assert Capture.of({}) == Capture()
    with pytest.raises(InputError, match="capture_every must be a whole number, 0 for none; got 'often'"):
        Capture.of({"apportion": {"capture_every": "often"}})


def test_our_gae_over_tool_tokens_and_padding_passes_the_linter(tmp_path):
    tensors, _ = take(tmp_path, CRITIC, {"adv_estimator": "apportion_ppo", "gamma": 1.0, "lam": 0.95})
    assert tensors.name == "step7.npz"
    assert findings(tensors) == {}
    assert {"reward-lost", "gap-leak", "credit-differs", "returns-differ"} <= set(findings(tensors, "holds"))


@pytest.mark.parametrize("recipe", ["reinforce", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus"])
def test_our_credit_of_whole_answers_passes_the_linter(tmp_path, recipe):
    tensors, _ = take(tmp_path, CRITIC, {"adv_estimator": f"apportion_{recipe}"})
    assert findings(tensors) == {}
    assert "reward-lost" in findings(tensors, "holds")


def test_an_answer_of_several_outputs_is_one_row(tmp_path):
    rows = [output("p_0_0", "ab", score=1.0), output("p_0_1", "c", score=1.0), output("p_1_0", "a")]
    tensors, _ = take(tmp_path, rows, {"adv_estimator": "apportion_dr_grpo"})
    columns = numpy.load(tensors)
    assert columns["rewards"].sum(1).tolist() == [1.0, 0.0]
    assert findings(tensors) == {}


def test_an_estimator_that_lost_the_outcome_with_a_rejected_token_is_found_out(tmp_path):
    rows = [output("p_0_0", "abc", score=1.0), output("p_1_0", "abc")]
    rejected = torch.tensor([[1, 1, 0], [1, 1, 1]])
    tensors, rollouts = take(
        tmp_path, rows, {"adv_estimator": "reinforce_plus_plus"}, credit=torch.zeros(2, 3), mask=rejected
    )
    assert "lost" in findings(tensors)["reward-unsampled"]
    assert files.load(rollouts).outcome.tolist() == [1.0, 0.0]


def test_right_credit_of_verls_own_passes_the_linter_and_padding_of_verls_is_left_out(tmp_path):
    half = torch.tensor([[0.5, 0.5, 0.5, 0.0], [-0.5, -0.5, 0.0, 0.0], [0.0] * 4, [9.0, 0.0, 0.0, 0.0]])
    config = {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}
    tensors, _ = take(tmp_path, CRITIC, config, credit=half)
    assert str(numpy.load(tensors)["recipe"]) == "dr_grpo"
    assert numpy.load(tensors)["groups"].tolist() == [0, 0, 1]
    assert findings(tensors) == {}


def test_rewards_with_a_kl_penalty_are_those_that_verl_used(tmp_path):
    handed = handed_from(CRITIC[:1])
    seen = dict.fromkeys(("advantages", "returns"), handed.scores)
    seen |= {"response_mask": handed.mask, "token_level_rewards": handed.scores - 0.25}
    tensors, _ = Capture(1, tmp_path).take(handed, seen, {"adv_estimator": "gae"}, 1)
    columns = numpy.load(tensors)
    assert columns["rewards"].tolist() == [[-0.25, -0.25, 0.75]]
    assert columns["values"].tolist() == [[0.5, 0.25, 0.75]]
    assert (str(columns["recipe"]), float(columns["lam"])) == ("gae", 1.0)


def test_the_rollouts_open_as_a_page_with_prompt_answer_and_credit(tmp_path):
    info = {"apportion_step_values": "[0.5, 0.75]"}
    rows = [output("p_0_0", "a\nb", score=1.0, info=info)]
    _, rollouts = take(tmp_path, rows, {"adv_estimator": "apportion_vineppo"})
    row = json.loads(rollouts.read_text())
    assert (row["prompt"], row["text"], row["ledger"]["credit"]) == ([0, 1], "aba\nb", [0.25, 0.25])
    shown = CliRunner().invoke(app, ["view", str(rollouts), "--out", str(tmp_path / "page.html")])
    assert shown.exit_code == 0
    assert (tmp_path / "page.html").exists()


def test_a_batch_of_nothing_but_padding_is_not_captured(tmp_path):
    with pytest.raises(InputError, match="every row of the batch is padding"):
        take(tmp_path, CRITIC[3:], {"adv_estimator": "grpo"}, credit=torch.zeros(1, 1))
