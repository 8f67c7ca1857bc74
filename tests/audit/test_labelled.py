"""Files with human labels: what is seen by which fields, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.audit.files import from_file, given, spelled, write_scored
from apportion.audit.labelled import read
from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy

ROWS = {
    "MR-GSM8K": {"question": "q", "model_output_steps": ["a", "b"], "model_output_solution_first_error_step": 2,
                 "ground_truth_answer": 5},
    "BIG-Bench Mistake": {"input": "q", "steps": ["a", "b"], "mistake_index": 1, "target": "5"},
    "PRMBench": {"modified_question": "q", "modified_process": ["a", "b"], "error_steps": [3, 2][1:],
                 "original_process": ["a", "5"]},
    "ProcessBench": {"problem": "q", "steps": ["a", "b"], "label": 1, "answer": "5"},
    "labelled steps": {"prompt": "q", "steps": ["a", "b"], "first_error": 1, "answer": "5"},
}  # fmt: skip
NO_ERROR = {"BIG-Bench Mistake": None, "PRMBench": [], "ProcessBench": -1, "labelled steps": None}
LABELS = {"BIG-Bench Mistake": "mistake_index", "PRMBench": "error_steps", "ProcessBench": "label",
          "labelled steps": "first_error", "MR-GSM8K": "model_output_solution_first_error_step"}  # fmt: skip


def write(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ROWS)
def test_a_data_set_is_known_by_its_fields(tmp_path: Path, name: str) -> None:
    kind, [answer], _ = read(write(tmp_path / "rows.jsonl", ROWS[name]))
    assert kind.name == name
    assert (answer.prompt, answer.steps, answer.key, answer.reference) == ("q", ("a", "b"), 1, "5")


@pytest.mark.parametrize("name", NO_ERROR)
def test_an_answer_without_an_error_is_worth_1(tmp_path: Path, name: str) -> None:
    rows = [ROWS[name], ROWS[name] | {LABELS[name]: NO_ERROR[name]}]
    subject, _ = from_file(write(tmp_path / "rows.jsonl", *rows))
    assert subject.outcome.tolist() == [0, 1]
    assert subject.truth.tolist() == [[0, -1], [0, 0]]
    assert subject.lost.tolist() == [True, False]


@pytest.mark.parametrize("name", ROWS)
def test_a_label_of_no_step_is_refused(tmp_path: Path, name: str) -> None:
    beyond = 3 if name in ("MR-GSM8K", "PRMBench") else 2
    row = ROWS[name] | {LABELS[name]: [beyond] if name == "PRMBench" else beyond}
    with pytest.raises(InputError, match=f"line 2: {LABELS[name]} is {beyond}"):
        read(write(tmp_path / "rows.jsonl", ROWS[name], row))


BAD = [
    pytest.param({"steps": ["a"]}, "no field says which step", id="no-label"),
    pytest.param(ROWS["ProcessBench"] | {"steps": []}, "at least one text", id="no-steps"),
    pytest.param(ROWS["ProcessBench"] | {"step_scores": [1.0] * 4}, "expected 2 numbers", id="scores-that-do-not-fit"),
    pytest.param(ROWS["ProcessBench"] | {"step_scores": [None, 1]}, "expected 2 numbers", id="null-score"),
    pytest.param(ROWS["ProcessBench"] | {"label": True}, "expected a step from 0 to 1", id="label-is-no-number"),
]


@pytest.mark.parametrize(("row", "words"), BAD)
def test_a_bad_row_is_refused(tmp_path: Path, row: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(write(tmp_path / "rows.jsonl", row))


def test_rows_of_another_kind_than_the_first_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: the field label is missing"):
        read(write(tmp_path / "rows.jsonl", ROWS["ProcessBench"], ROWS["BIG-Bench Mistake"]))


def test_scores_of_a_field_that_is_not_there_are_refused(tmp_path: Path) -> None:
    row = ROWS["ProcessBench"] | {"prm": [1.0, 0.0]}
    assert read(write(tmp_path / "rows.jsonl", row), "prm")[1][0].scores == (1.0, 0.0)
    with pytest.raises(InputError, match="did you mean 'prm'"):
        read(tmp_path / "rows.jsonl", "prn")


def test_scores_stand_before_and_after_their_steps(tmp_path: Path) -> None:
    rows = [
        ROWS["ProcessBench"] | {"step_scores": [0.75, 0.25]},
        ROWS["ProcessBench"] | {"step_scores": [0.5, 0.25, 0]},
    ]
    path = write(tmp_path / "rows.jsonl", *rows)
    subject, raw = from_file(path)
    scores = given(read(path)[1], subject.steps)
    assert scores.before.tolist() == [[1.0, 0.75], [0.5, 0.25]]
    assert scores.after.tolist() == [[0.75, 0.25], [0.25, 0.0]]
    write_scored(tmp_path / "again.jsonl", raw, scores, subject.steps)
    assert read(tmp_path / "again.jsonl")[1][0].scores == (1.0, 0.75, 0.25)


def test_at_most_so_many_answers_are_taken_evenly(tmp_path: Path) -> None:
    rows = [ROWS["ProcessBench"] | {"label": label, "steps": list("abcdef")} for label in range(6)]
    subject, _ = from_file(write(tmp_path / "rows.jsonl", *rows), most=3)
    assert subject.key.tolist() == [0, 2, 4]


def test_steps_in_a_policys_tokens_begin_where_the_text_does(tmp_path: Path) -> None:
    policy = CausalPolicy.load("embedded")
    row = {"prompt": "47A+5~?", "steps": ["Ab47+5=52\n", "52"], "first_error": None, "answer": "52"}
    _, answers, _ = read(write(tmp_path / "rows.jsonl", row))
    batch, steps = spelled(answers, policy)
    prompt = len(policy.encode("47A+5~?"))
    lengths = [len(policy.encode_answer("Ab47+5=52\n")), len(policy.encode_answer("52\n"))]
    assert steps.lengths.tolist() == [[float(length) for length in lengths]]
    assert int(batch.action_mask[0, :prompt].sum()) == 0
    assert policy.spell(batch.tokens[0, prompt:].tolist())[0] == "Ab47+5=52\n52\n"
    ended, more = spelled(answers, policy, end=True)
    assert more.counts.tolist() == [3]
    assert ended.tokens[0, :-1].tolist() == batch.tokens[0].tolist()


def test_likelihoods_stand_before_and_after_their_steps_and_hang_on_what_was_read(tmp_path: Path) -> None:
    policy = CausalPolicy.load("embedded")
    lost = {"prompt": "47A+5B-3C+1~?", "steps": ["Ab47+5=52", "Ba52-3=47"], "first_error": 1, "answer": 50}
    right = lost | {"steps": ["Ab47+5=52", "Ba52-3=49", "Ca49+1=50"], "first_error": None}
    subject, _ = from_file(write(tmp_path / "rows.jsonl", lost, right), policy)
    scores = subject.scores("likelihood")
    assert scores.before[0, :2].tolist() == pytest.approx(scores.before[1, :2].tolist())
    assert scores.before[:, 1].tolist() == scores.after[:, 0].tolist()
    assert scores.after[0, 1] != pytest.approx(float(scores.after[1, 1]))
    assert scores.after[0, 2] == 0
    assert scores.tokens == 0
