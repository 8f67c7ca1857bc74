"""The callback that writes batches down and lints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

import trl

from apportion import InputError
from apportion.adapters.trl import Continuations, GRPOTrainer, LedgerCallback
from apportion.lint.report import lint_file
from apportion.view.source import read_answers
from trl_runs import MARKS, trainer

pytestmark = MARKS


def verdicts(path: Path) -> dict[str, str]:
    return {found.code: found.verdict for found in lint_file(path, {}, {})}


def written(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (folder / kind).iterdir())


def test_every_second_step_of_a_run_with_credit_a_line_is_written_and_passes_lint(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    trainer(
        tmp_path, recipe="vineppo", values=Continuations(1), callbacks=[LedgerCallback(watch, every=2)], max_steps=3
    ).train()
    assert written(watch, "ledgers") == ["step-000000.jsonl", "step-000002.jsonl"]
    assert written(watch, "batches") == written(watch, "losses") == ["step-000000.npz", "step-000002.npz"]
    rows = [json.loads(line) for line in (watch / "lint.jsonl").read_text().splitlines()]
    assert [(row["batch"], row["broken"]) for row in rows] == [
        (f"{kind}/step-{step:06d}", {}) for step in (0, 2) for kind in ("batches", "losses")
    ]
    answers = read_answers(watch / "ledgers" / "step-000002.jsonl")
    assert len(answers) == 16
    assert all(answer.credited for answer in answers)
    found = verdicts(watch / "losses" / "step-000002.npz")
    assert found["credit-collapsed"] == found["reduction-differs"] == found["padding-credit"] == "holds"


def test_advantages_of_trl_itself_are_watched_and_found_right(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    trainer(tmp_path, recipe=None, callbacks=[LedgerCallback(watch, every=1)], max_steps=1).train()
    found = verdicts(watch / "batches" / "step-000000.npz")
    assert found["group-statistics"] == found["reward-lost"] == found["uneven-answer"] == "holds"
    assert "broken" not in found.values()
    shown = read_answers(watch / "ledgers" / "step-000000.jsonl")
    assert len(shown) == 16


class Leaking(GRPOTrainer):
    """Gives padding the credit of its answer."""

    def _advantages(self, ledger: Any, width: int) -> Any:
        found = super()._advantages(ledger, width)
        return found[:, :1].expand_as(found).contiguous()


class Averaging(GRPOTrainer):
    """Divides by the tokens of a micro-batch, as the loss `bnpo` of TRL does; but says that it does not."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.loss_type = "bnpo"
        return super()._compute_loss(model, inputs)


class Collapsing(GRPOTrainer):
    """Gives every token of an answer its mean credit, by one ratio for all of it."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.importance_sampling_level = "sequence"
        return super()._compute_loss(model, inputs)


FAULTY = [
    pytest.param(Leaking, {}, "batches/step-000000: padding-credit", id="credit in padding"),
    pytest.param(
        Averaging, {}, "losses/step-000000: reduction-differs: broken: .*micro-batches", id="means of micro-batches"
    ),
    pytest.param(
        Collapsing,
        {"recipe": "vineppo", "values": Continuations(1)},
        "losses/step-000000: credit-collapsed",
        id="one ratio an answer",
    ),
]


@pytest.mark.parametrize(("made_by", "more", "said"), FAULTY)
def test_a_fault_in_the_trainer_is_told(made_by: Any, more: dict[str, Any], said: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    host = trainer(tmp_path, made_by=made_by, callbacks=[LedgerCallback(tmp_path / "watch")], max_steps=1, **more)
    with pytest.warns(UserWarning, match=said):
        host.train()


def test_training_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "watch").write_text("a file where the folder should be")
    host = trainer(tmp_path, callbacks=[LedgerCallback(tmp_path / "watch")], max_steps=1)
    with pytest.warns(UserWarning, match="not written down or checked, training goes on"):
        host.train()
    assert host.state.global_step == 1


def test_every_zeroth_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="n must be a whole number from 1 on, got 0"):
        LedgerCallback(tmp_path, every=0)


def test_training_goes_on_where_a_batch_holds_nothing_to_check(tmp_path: Path) -> None:
    cut = {"mask_truncated_completions": True, "max_completion_length": 2}  # every answer is
    host = trainer(tmp_path, callbacks=[LedgerCallback(tmp_path / "watch", every=1)], max_steps=1, **cut)
    with pytest.warns(UserWarning, match="training goes on: every token is padding"):
        host.train()
    assert host.state.global_step == 1


def test_a_step_that_generates_twice_has_two_batches_and_one_loss(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    trainer(tmp_path, callbacks=[LedgerCallback(watch, every=1)], max_steps=1, steps_per_generation=1).train()
    assert written(watch, "ledgers") == ["step-000000-1.jsonl", "step-000000.jsonl"]
    assert written(watch, "batches") == ["step-000000-1.npz", "step-000000.npz"]
    import numpy

    assert len(numpy.load(watch / "losses" / "step-000000.npz")["action_mask"]) == 16
    assert not any(json.loads(line)["broken"] for line in (watch / "lint.jsonl").read_text().splitlines())


def test_batches_that_last_for_several_steps_are_not_called_broken(tmp_path: Path) -> None:
    watch = tmp_path / "watch"
    trainer(tmp_path, callbacks=[LedgerCallback(watch, every=1)], max_steps=2, steps_per_generation=4).train()
    assert written(watch, "batches") == ["step-000000.npz"]
    assert written(watch, "losses") == ["step-000000.npz", "step-000001.npz"]
    assert not any(json.loads(line)["broken"] for line in (watch / "lint.jsonl").read_text().splitlines())


def test_under_a_trainer_that_shows_it_nothing_the_callback_says_so(tmp_path: Path) -> None:
    host = trainer(
        tmp_path, made_by=trl.GRPOTrainer, callbacks=[LedgerCallback(tmp_path / "watch", every=1)], max_steps=2
    )
    with pytest.warns(UserWarning, match="sees nothing: the trainer is not apportion") as told:
        host.train()
    assert sum("sees nothing" in str(each.message) for each in told) == 1
