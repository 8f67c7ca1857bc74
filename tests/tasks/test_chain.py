"""The embedded task and the model that ships with it."""

from __future__ import annotations

import random
from importlib.resources import files
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.tasks.chain import Chain, exact_value, first_error, judge_steps, write_answer
from apportion.tasks.problem import Problem

PROBLEM = Problem("47A+5B-3~~?", "49")
RIGHT = "Abd47+5=52\nBfa52-3=49\n49"


@pytest.mark.parametrize(
    ("response", "score"),
    [
        pytest.param(RIGHT, 1.0, id="right"),
        pytest.param("49", 1.0, id="right without steps"),
        pytest.param("Abd47+5=53\nBfa53-4=49\n49", 1.0, id="right by luck"),
        pytest.param("Abd47+5=52\nBfa52-3=48\n48", 0.0, id="wrong"),
        pytest.param("Abd47+5=52\nBfa52-3=49", 0.0, id="no answer line"),
        pytest.param("Abd47+5=52\nBfa52-3=49\na49", 0.0, id="letters in the answer line"),
        pytest.param("49\n48", 0.0, id="right line not last"),
        pytest.param("", 0.0, id="empty"),
        pytest.param("\n~=+", 0.0, id="marks"),
    ],
)
def test_the_judge_compares_the_last_line_with_the_answer(response: str, score: float) -> None:
    assert Chain(2, 2).score(PROBLEM, response) == score


@pytest.mark.parametrize(
    ("response", "verdicts", "first"),
    [
        pytest.param(RIGHT, [True, True, True], None, id="all right"),
        pytest.param(RIGHT + "\n", [True, True, True], None, id="newline at the end"),
        pytest.param("A47+5=52\nB52-3=49\n49", [True, True, True], None, id="no letters"),
        pytest.param("A47+5=54\nB54-3=51\n51", [False, True, True], 0, id="honest after a slip"),
        pytest.param("A47+5=52\nB51-3=48\n48", [True, False, True], 1, id="copied wrongly"),
        pytest.param("A47+5=52\nB52-4=48\n48", [True, False, True], 1, id="wrong operand"),
        pytest.param("A47-5=42\nB42-3=39\n39", [False, True, True], 0, id="wrong sign"),
        pytest.param("A47+5=52\nB52-3=49\n48", [True, True, False], 2, id="answer miscopied"),
        pytest.param("A47+5=52\nB52-3=49", [True, True], 2, id="answer missing"),
        pytest.param("A47+5=52\n52", [True, False], 1, id="step missing"),
        pytest.param(RIGHT + "\n49", [True, True, True, False], 3, id="a line too many"),
        pytest.param("B47+5=52\nB52-3=49\n49", [False, True, True], 0, id="wrong name"),
        pytest.param("A47+\nB52-3=49\n49", [False, False, True], 0, id="unreadable line"),
        pytest.param("", [], 0, id="empty"),
    ],
)
def test_every_line_is_judged_given_the_line_before_it(response: str, verdicts: list[bool], first: int | None) -> None:
    assert judge_steps(PROBLEM, response) == verdicts
    assert first_error(PROBLEM, response) == first


@pytest.mark.parametrize("steps", [2, 6, 12])
@pytest.mark.parametrize("wording", [0, 3])
def test_an_answer_without_planted_errors_is_right(steps: int, wording: int) -> None:
    task, rng = Chain(steps, wording), random.Random(0)
    for problem in task.sample(50, rng):
        response = write_answer(problem, rng)
        assert task.score(problem, response) == 1.0
        assert judge_steps(problem, response) == [True] * (steps + 1)
        assert all(line[1 : 1 + wording].isalpha() for line in response.split("\n")[:-1] if wording)


def test_planted_errors_come_as_often_as_asked_and_what_follows_stays_honest() -> None:
    task, rng = Chain(5, 1), random.Random(0)
    wrong = 0
    for problem in task.sample(1000, rng):
        verdicts = judge_steps(problem, write_answer(problem, rng, error=0.2))
        assert len(verdicts) == 6
        assert verdicts[-1]
        wrong += verdicts.count(False)
    assert 0.18 < wrong / 5000 < 0.22


def test_values_keep_two_digits_however_many_steps_go_wrong() -> None:
    rng = random.Random(0)
    for problem in Chain(12, 0).sample(200, rng):
        results = write_answer(problem, rng, error=1.0).split("\n")
        assert all(10 <= int(line.split("=")[-1]) <= 79 for line in results)


@pytest.mark.parametrize("steps", [3, 6])
def test_training_never_draws_a_held_out_problem(steps: int) -> None:
    task = Chain(steps, 1)
    held_out = {problem.prompt for problem in task.held_out(1000)}
    assert len(held_out) == 1000
    assert held_out.isdisjoint(p.prompt for p in task.sample(5000, random.Random(0)))


def test_held_out_problems_are_fixed_and_shared_by_every_wording() -> None:
    plain, worded = Chain(4, 0).held_out(20), Chain(4, 3).held_out(10)
    assert plain == Chain(4, 0).held_out(20)
    assert [p.prompt.replace("~", "") for p in worded] == [p.prompt for p in plain[:10]]


def test_more_held_out_problems_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="ask for fewer"):
        Chain(2, 0).held_out(500)


@pytest.mark.parametrize(("steps", "wording"), [(1, 0), (13, 0), (3, -1)])
def test_a_chain_too_short_or_too_long_or_with_negative_wording_is_refused(steps: int, wording: int) -> None:
    with pytest.raises(InputError, match="at least"):
        Chain(steps, wording)


def test_a_prompt_that_is_no_chain_is_refused() -> None:
    with pytest.raises(InputError, match="47A"):
        first_error(Problem("What is 2+2?", "4"), "4")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(files("apportion") / "embedded"))


def test_the_tokenizer_gives_back_what_it_read(tokenizer: Any) -> None:
    rng = random.Random(0)
    for problem in Chain(5, 3).sample(100, rng):
        text = problem.prompt + write_answer(problem, rng, error=0.5)
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("text", ["08", "100", "\n\n1=", "a~h?", "7"])
def test_the_tokenizer_gives_back_malformed_text_too(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_number_is_one_token(tokenizer: Any) -> None:
    assert tokenizer.tokenize("47A+5B-3~?") == ["47", "A", "+", "5", "B", "-", "3", "~", "?"]


def test_the_shipped_model_knows_the_answers(tokenizer: Any) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(str(files("apportion") / "embedded"))
    task = Chain(4, 1)
    problems = task.held_out(64)
    batch = tokenizer([p.prompt for p in problems], return_tensors="pt")
    with torch.inference_mode():
        ids = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=False,
            max_new_tokens=48,
        )
    responses = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    scores = [task.score(p, r) for p, r in zip(problems, responses, strict=True)]
    assert sum(scores) / len(scores) > 0.9


def test_exact_values_by_hand() -> None:
    # two lines to come: both right, or two slips that cancel (each slip has its opposite, 1 in 6)
    assert exact_value(PROBLEM, "", 0.12) == pytest.approx(0.88**2 + 0.12 * 0.12 / 6)
    assert exact_value(PROBLEM, "Abd47+5=52\n", 0.12) == pytest.approx(0.88)
    assert exact_value(PROBLEM, "Abd47+5=53\n", 0.12) == pytest.approx(0.12 / 6)
    assert exact_value(PROBLEM, "Abd47+5=56\n", 0.12) == 0.0
    assert exact_value(PROBLEM, "Abd47+5=52\nBfa52-3=49\n", 0.12) == 1.0
    assert exact_value(PROBLEM, "Abd47+5=53\nBfa53-4=49\n", 0.12) == 0.0  # a line that makes another move
    assert exact_value(PROBLEM, RIGHT, 0.12) == 1.0
    assert exact_value(PROBLEM, RIGHT.replace("\n49", "\n48"), 0.12) == 0.0


def test_exact_values_are_how_often_a_writer_ends_right() -> None:
    rng, task = random.Random(3), Chain(4, 1)
    ends: dict[int, list[bool]] = {}
    problem = task.held_out(1)[0]
    for _ in range(6000):
        lines = write_answer(problem, rng, error=0.3).split("\n")
        value = round(1e6 * exact_value(problem, "\n".join(lines[:2]) + "\n", 0.3))
        ends.setdefault(value, []).append(lines[-1] == problem.answer)
    assert len(ends) > 3
    for value, right in ends.items():
        if len(right) > 300:
            assert sum(right) / len(right) == pytest.approx(value / 1e6, abs=0.06)
