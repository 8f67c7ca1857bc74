"""Methods as credit of steps: worked by hand on two answers with scores of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from apportion.audit import audit
from apportion.audit.files import from_file
from apportion.audit.methods import FORMULAS, WHOLE, credited
from apportion.audit.subject import Subject
from apportion.errors import InputError

LOST = {"prompt": "p", "steps": ["a", "b", "c"], "first_error": 1, "step_scores": [0.5, 0.75, 0.375, 0.25]}
RIGHT = {"prompt": "q", "steps": ["a", "b"], "first_error": None, "step_scores": [0.5, 0.25, 1.0]}


def subject(tmp_path: Path, *rows: dict) -> Subject:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows or (LOST, RIGHT)))
    return from_file(file)[0]


CREDIT = [
    pytest.param("whole", [[-0.5, -0.5, -0.5], [0.5, 0.5]], id="whole"),
    pytest.param("telescoping", [[0.25, -0.375, -0.375], [-0.25, 0.75]], id="telescoping"),
    pytest.param("gae:0", [[0.25, -0.375, -0.375], [-0.25, 0.75]], id="gae-0-is-telescoping"),
    pytest.param("gae:0.5", [[-0.03125, -0.5625, -0.375], [0.125, 0.75]], id="gae"),
    pytest.param("gae:1", [[-0.5, -0.75, -0.375], [0.5, 0.75]], id="gae-1-is-to-go"),
    pytest.param("to_go", [[-0.5, -0.75, -0.375], [0.5, 0.75]], id="to-go"),
    pytest.param("min_form:0.001", [[-0.5, -0.5, -0.5], [-0.5, 0.0]], id="min-form-near-the-lowest"),
    pytest.param("drop", [[0.0, -1.0, 0.0], [0.0, 0.0]], id="drop"),
    pytest.param("threshold", [[0.0, -1.0, 0.0], [0.0, 0.0]], id="threshold"),
    pytest.param("threshold:0.3", [[0.0, 0.0, -1.0], [0.0, 0.0]], id="lower-threshold"),
    pytest.param("threshold:0.1", [[0.0, 0.0, 0.0], [0.0, 0.0]], id="threshold-that-nothing-is-under"),
    pytest.param("argmin", [[0.0, 0.0, -1.0], [0.0, 0.0]], id="argmin"),
    pytest.param("reinforce", [[0.0, 0.0, 0.0], [1.0, 1.0]], id="a-recipe"),
]


@pytest.mark.parametrize(("name", "expected"), CREDIT)
def test_credit_by_hand(tmp_path: Path, name: str, expected: list[list[float]]) -> None:
    found = credited(subject(tmp_path), name).credit
    assert [found[0].tolist(), found[1, :2].tolist()] == [pytest.approx(row, abs=1e-6) for row in expected]
    assert found[1, 2] == 0


@pytest.mark.parametrize(
    ("name", "missed"),
    [
        pytest.param("telescoping", [0, 0], id="telescoping-conserves"),
        pytest.param("gae:1", [-1.125, 0.75], id="gae-counts-later-steps-again"),
        pytest.param("drop", [-0.5, -0.5], id="drop-says-no-size"),
        pytest.param("reinforce", [0, 0], id="an-answer-is-one-step"),
    ],
)
def test_the_residual_is_credit_less_what_was_gained(tmp_path: Path, name: str, missed: list[float]) -> None:
    assert credited(subject(tmp_path), name).residual.tolist() == pytest.approx(missed)


def test_without_a_score_before_the_first_step_an_answer_starts_at_1(tmp_path: Path) -> None:
    found = credited(subject(tmp_path, LOST | {"step_scores": [0.25, 0.75, 0.5]}), "drop")
    assert found.credit.tolist() == [[-1, 0, 0]]


def test_random_blames_every_step_and_the_same_ones_again(tmp_path: Path) -> None:
    first, second = (credited(subject(tmp_path), "random").credit for _ in range(2))
    assert torch.equal(first, second)
    assert (first[0] < 0).all()
    assert first[1, 2] == 0


def test_a_method_that_knows_the_truth_scores_1_and_blames_nothing_idle(tmp_path: Path) -> None:
    truth = [LOST | {"step_scores": [1, 1, 0, 0]}, RIGHT | {"step_scores": [1, 1, 1]}, LOST | {"first_error": 0,
             "step_scores": [1, 0, 0, 0]}]  # fmt: skip
    found = audit(subject(tmp_path, *truth), ["telescoping", "argmin"])
    figures = {name: figure.value for name, figure in found.judged[0].figures.items() if figure.told}
    expected = {"pearson": 1, "spearman": 1, "hit_1": 1, "hit_3": 1, "key_share": 1, "idle_share": 0, "residual": 0}
    assert figures == pytest.approx(expected)
    assert found.best == "telescoping"


def test_figures_less_the_first_method_are_of_the_same_answers(tmp_path: Path) -> None:
    first, second = audit(subject(tmp_path), ["drop", "argmin"]).judged
    assert first.less_first is None
    less = second.less_first
    assert less is not None
    assert (less["hit_1"].value, less["hit_1"].low, less["hit_1"].high) == (-1, -1, -1)  # wherever it can be told
    assert less["pearson"].value == second.figures["pearson"].value - first.figures["pearson"].value


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("dorp", "did you mean 'drop'", id="unknown-method"),
        pytest.param("drop@givn", "did you mean 'given'", id="unknown-scores"),
        pytest.param("gae:much", "'much' is no number", id="no-number"),
        pytest.param("gae:2", "between 0 and 1", id="lam-out-of-range"),
        pytest.param("drop:2", "takes no number", id="number-without-effect"),
        pytest.param("grpo@given", "neither a number nor scores", id="scores-without-effect"),
    ],
)
def test_a_bad_name_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        credited(subject(tmp_path), name)


def test_an_audit_of_nothing_or_of_a_method_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="asked for twice"):
        audit(subject(tmp_path), ["drop", "drop"])


def test_without_scores_methods_that_need_none_still_say_something(tmp_path: Path) -> None:
    bare = [{name: value for name, value in row.items() if name != "step_scores"} for row in (LOST, RIGHT)]
    made = subject(tmp_path, *bare)
    assert credited(made, "random").tokens == 0
    with pytest.raises(InputError, match="--scores FIELD"):
        credited(made, "drop")


def test_every_method_is_in_the_table_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    assert [name for name in (*FORMULAS, *WHOLE, "random") if f"`{name}" not in page] == []
