"""Prompts from a JSONL file: what is read, what is set aside, what is refused and where."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.rewards.checkers import exact
from apportion.tasks.problem import Problem
from apportion.tasks.prompts import Prompts


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sums(count: int) -> list[dict[str, object]]:
    return [{"prompt": f"{number} + 1 =", "answer": number + 1} for number in range(count)]


ROWS = {
    "prompt and answer": ({"prompt": "2+2?", "answer": "4"}, Problem("2+2?", "4")),
    "question and solution": ({"question": "2+2?", "solution": "4"}, Problem("2+2?", "4")),
    "problem and ground truth": ({"problem": "2+2?", "ground_truth": "4"}, Problem("2+2?", "4")),
    "short answer before solution": (
        {"prompt": "p", "solution": "long", "ground_truth": "4"},
        Problem("p", "4"),
    ),
    "whole number": ({"prompt": "p", "answer": 4}, Problem("p", "4")),
    "decimal number": ({"prompt": "p", "answer": 0.5}, Problem("p", "0.5")),
    "gsm8k": (
        {"question": "p", "answer": "3 * 6 = <<3*6=18>>18\n#### 1,018"},
        Problem("p", "1,018"),
    ),
    "heading in a solution": (
        {"prompt": "p", "answer": "#### Step 1\nAdd.\n4"},
        Problem("p", "#### Step 1\nAdd.\n4"),
    ),
    "not ASCII": (
        {"prompt": "¿2+2?\u2028", "answer": "quatre é"},
        Problem("¿2+2?\u2028", "quatre é"),
    ),
}


@pytest.mark.parametrize(("row", "problem"), ROWS.values(), ids=ROWS.keys())
def test_a_row_is_read_as(row: dict[str, object], problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")
    with pytest.warns(UserWarning, match="only one prompt"):
        task = Prompts.load(path)
    assert task.sample(1, random.Random(0)) == [problem]


def test_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "answer": "1"}\r\n\r\n{"prompt": "b", "answer": "2"}\n\n')
    task = Prompts.load(path)
    assert {*task.training, *task.reserved} == {Problem("a", "1"), Problem("b", "2")}


BAD_LINES = {
    "not JSON": ("{prompt: 1}", "not JSON"),
    "nested without end": ("[" * 100_000, "not JSON"),
    "a list": ("[1]", "expected an object with fields, got list"),
    "a number": ("3", "expected an object with fields, got int"),
    "no prompt": ('{"text": "a", "answer": "1"}', "no prompt.*fields: 'text', 'answer'"),
    "no answer": ('{"prompt": "a", "label": "1"}', "no answer.*fields: 'prompt', 'label'"),
    "no fields": ("{}", "the row's fields: none"),
    "chat messages": ('{"prompt": [{"role": "user"}], "answer": "1"}', "be text; found a list"),
    "empty prompt": ('{"prompt": " ", "answer": "1"}', "'prompt' is empty"),
    "empty answer": ('{"prompt": "a", "answer": ""}', "'answer' holds no answer"),
    "nothing after hashes": ('{"prompt": "a", "answer": "so\\n#### "}', "holds no answer"),
    "answer a list": ('{"prompt": "a", "answer": ["1"]}', "finite number; found a list"),
    "answer null": ('{"prompt": "a", "answer": null}', "finite number; found the value null"),
    "answer true": ('{"prompt": "a", "answer": true}', "finite number; found the value true"),
    "answer NaN": ('{"prompt": "a", "answer": NaN}', "finite number; found the value NaN"),
    "answer infinite": ('{"prompt": "a", "answer": 1e999}', "found the value Infinity"),
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_refused_with_path_and_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"p\.jsonl, line 3: .*{message}"):
        Prompts.load(path)


def test_a_line_that_is_not_utf_8_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prompt": "a", "answer": "1"}\n{"prompt": "\xff", "answer": "1"}')
    with pytest.raises(InputError, match=r"p\.jsonl, line 2: not UTF-8"):
        Prompts.load(path)


def test_a_missing_an_unreadable_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.jsonl: there is no such file"):
        Prompts.load(tmp_path / "no.jsonl")
    with pytest.raises(InputError, match="no such file"):
        Prompts.load(tmp_path)
    (tmp_path / "empty.jsonl").write_text(" \n\n")
    with pytest.raises(InputError, match=r"empty\.jsonl: the file holds no rows"):
        Prompts.load(tmp_path / "empty.jsonl")


SPLITS = {
    "two": (2, None, 1),
    "nineteen": (19, None, 1),
    "fifty": (50, None, 5),
    "very many": (6000, None, 512),
    "asked for": (50, 7, 7),
    "none": (50, 0, 0),
    "all but one": (50, 49, 49),
}


@pytest.mark.parametrize(("rows", "asked", "aside"), SPLITS.values(), ids=SPLITS.keys())
def test_held_out_prompts_are_never_sampled(rows: int, asked: int | None, aside: int, tmp_path: Path) -> None:
    task = Prompts.load(write(tmp_path / "p.jsonl", sums(rows)), held_out=asked)
    held_out = task.held_out(10_000)
    assert len(held_out) == aside
    sampled = task.sample(rows - aside, random.Random(0))
    assert len(set(sampled)) == rows - aside
    assert not set(sampled) & set(held_out)


@pytest.mark.parametrize("asked", [-1, 50, 51], ids=["negative", "all", "more than all"])
def test_holding_out_too_many_is_refused(asked: int, tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", sums(50))
    with pytest.raises(InputError, match=f"{asked} prompts were to be held out of 50.*0 to 49"):
        Prompts.load(path, held_out=asked)


def test_a_prompt_that_stands_twice_is_never_on_both_sides(tmp_path: Path) -> None:
    task = Prompts.load(write(tmp_path / "p.jsonl", sums(10) + sums(10)), held_out=5)
    assert len(task.reserved) == len(task.training) == 10
    assert not set(task.reserved) & set(task.training)


def test_the_split_is_fixed_by_the_seed_and_mixes_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", sums(100))
    first = Prompts.load(path)
    assert first == Prompts.load(path)
    assert first.reserved != Prompts.load(path, seed=1).reserved
    assert first.reserved not in (first.training[:10], first.training[-10:])
    assert first.held_out(3) == list(first.reserved[:3])
    indices = [int(problem.answer) for problem in first.reserved]
    assert max(indices) - min(indices) > 10


def test_one_prompt_serves_both_sides_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"p\.jsonl holds only one prompt"):
        task = Prompts.load(write(tmp_path / "p.jsonl", sums(1)))
    assert task.sample(3, random.Random(0)) == [Problem("0 + 1 =", "1")] * 3
    assert task.held_out(3) == [Problem("0 + 1 =", "1")]


def test_two_prompts_give_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Prompts.load(write(tmp_path / "p.jsonl", sums(2)))


def test_a_sample_draws_every_prompt_before_any_comes_again(tmp_path: Path) -> None:
    task = Prompts.load(write(tmp_path / "p.jsonl", sums(6)), held_out=2)
    sampled = task.sample(10, random.Random(3))
    assert set(sampled[:4]) == set(sampled[4:8]) == set(task.training)
    assert len(sampled) == 10
    assert task.sample(10, random.Random(3)) == sampled != task.sample(10, random.Random(4))


def test_the_checker_given_is_the_judge(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", sums(3))
    assert Prompts.load(path).score(Problem("1 + 1 =", "2"), "It is 2.0") == 1.0
    assert Prompts.load(path, check=exact).score(Problem("1 + 1 =", "2"), "It is 2.0") == 0.0
    unsure = Prompts.load(path, check=lambda response, answer: None)
    assert unsure.score(Problem("1 + 1 =", "2"), "2") is None
    assert unsure.name == "sums"
