"""Tasks from reasoning-gym: apart from their held-out problems, and judged by its scorers."""

from __future__ import annotations

import random

import pytest

from apportion.errors import InputError
from apportion.tasks.gym import Gym, final_answer
from apportion.tasks.problem import Problem

pytest.importorskip("reasoning_gym")


def test_the_right_answer_scores_one_and_a_wrong_one_nothing() -> None:
    task = Gym("chain_sum")
    assert task.name == "gym:chain_sum"
    for problem in task.sample(5, random.Random(0)) + task.held_out(5):
        assert task.score(problem, f"Let me add.\n{problem.answer}\n") == 1.0
        assert task.score(problem, f"{problem.answer}\nNo: it is {int(problem.answer) + 1}.") == 0.0
        assert task.score(problem, "") == 0.0


def test_a_grid_is_read_from_as_many_last_lines() -> None:
    task = Gym("rotate_matrix", min_n=3, max_n=3)
    problem = task.sample(1, random.Random(0))[0]
    assert problem.answer.count("\n") == 2
    assert task.score(problem, f"Turned:\n\n{problem.answer}") == 1.0


def test_a_scorer_that_knows_many_right_answers_gets_its_entry() -> None:
    task = Gym("graph_color", min_num_vertices=2, max_num_vertices=2, num_colors=2)
    problem = task.held_out(1)[0]
    assert problem.answer == ""
    assert task.score(problem, '{"0": 1, "1": 2}') == 1.0
    assert task.score(problem, '{"0": 2, "1": 1}') == 1.0
    assert task.score(problem, '{"0": 1}') in (0.0, 0.01)  # some scorers give 0.01 for trying


SPACES = {
    "wide": {"size": 500},
    "moved by one": {"size": 1, "held_out": 100},
    "narrow": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
}


@pytest.mark.parametrize("settings", SPACES.values(), ids=SPACES.keys())
def test_no_training_prompt_is_held_out(settings: dict[str, int]) -> None:
    task = Gym("chain_sum", **settings)
    held_out = {problem.prompt for problem in task.held_out(1000)}
    sampled = {problem.prompt for problem in task.sample(300, random.Random(0))}
    assert held_out
    assert not sampled & held_out


def test_a_dataset_that_mostly_repeats_itself_keeps_half_to_train_on() -> None:
    task = Gym("coin_flip", held_out=2000, size=5000)
    held_out = {problem.prompt for problem in task.held_out(2000)}
    sampled = {problem.prompt for problem in task.sample(500, random.Random(0))}
    assert 10 < len(held_out) < 1000
    assert len(sampled) > len(held_out) / 4
    assert not sampled & held_out


def test_a_dataset_of_one_prompt_is_refused_when_sampled() -> None:
    task = Gym("chain_sum", size=1, held_out=1)
    task._reserve = task._training
    with pytest.raises(InputError, match="too few different prompts"):
        task.sample(1, random.Random(0))


def test_held_out_problems_are_fixed_and_samples_follow_the_generator() -> None:
    one, two = Gym("chain_sum"), Gym("chain_sum")
    assert one.held_out(64) == two.held_out(64)
    assert one.held_out(3) == one.held_out(64)[:3]
    assert len(one.held_out(1000)) == 64
    assert one.sample(5, random.Random(1)) == two.sample(5, random.Random(1))
    assert one.sample(5, random.Random(1)) != one.sample(5, random.Random(2))
    assert one.held_out(64) != Gym("chain_sum", seed=7).held_out(64)


ANSWERS = {
    "last line": ("2 + 2\nis\n4\n\n", 1, "4"),
    "introduced": ("So:\nThe final answer is 4.", 1, "4"),
    "introduced with a colon": ("Answer: 4", 1, "4"),
    "bold": ("**Answer: 4**", 1, "4"),
    "bold within": ("The answer is **4**.", 1, "4"),
    "powers kept": ("2*x**2 + x**3", 1, "2*x**2 + x**3"),
    "a word with a full stop": ("Yes.", 1, "Yes."),
    "tags": ("<answer>4</answer>\nDone.", 1, "4"),
    "tags over lines": ("<answer>\n1 2\n3 4\n</answer>", 2, "1 2\n3 4"),
    "box": (r"It is \boxed{4}, I think.", 1, "4"),
    "box in tags": (r"\boxed{3} <answer>\boxed{4}</answer>", 1, "4"),
    "grid": ("Here:\n1 2\n\n3 4\n", 2, "1 2\n3 4"),
    "empty": ("\n", 1, ""),
}


@pytest.mark.parametrize(("response", "lines", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_final_answer_is_taken_from(response: str, lines: int, answer: str) -> None:
    assert final_answer(response, lines) == answer


EXPLOSIVE = ["9**9**9", "9^(9^9)", "2**99999", "2**(99999)", "99999!", "9!!!"]


@pytest.mark.parametrize("text", EXPLOSIVE, ids=EXPLOSIVE)
def test_a_number_without_end_never_reaches_the_scorer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Gym("countdown", held_out=1)
    problem = task.held_out(1)[0]
    monkeypatch.setattr(task._training, "score_answer", lambda answer, entry: 1.0)
    assert task.score(problem, text) == 0.0
    assert task.score(problem, "x" * 3000) == 0.0
    assert task.score(problem, "2*x**2 + 3*x**12 - 1234") == 1.0


def test_the_right_answer_is_never_too_much_for_the_scorer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Gym("countdown", held_out=1)
    entry = {"question": "Write a tower of nines.", "answer": "9**9**9", "metadata": {}}
    monkeypatch.setattr(task, "_training", [entry])
    problem = task.sample(1, random.Random(0))[0]
    monkeypatch.setattr(task, "_training", Gym("spell_backward")._training)
    assert task.score(problem, "9**9**9") == 1.0


def failing(error: Exception):  # type: ignore[no-untyped-def]
    def score(answer: str, entry: object) -> float:
        raise error

    return score


OUTCOMES = {
    "text it cannot read": (failing(ValueError("not a number")), 0.0),
    "a failure of its own": (failing(KeyError("metadata")), None),
    "not a number": (lambda answer, entry: float("nan"), None),
    "part of the score": (lambda answer, entry: 0.25, 0.25),
}


@pytest.mark.parametrize(("scorer", "score"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_what_the_scorer_does_becomes(scorer, score, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    task = Gym("chain_sum", held_out=1)
    monkeypatch.setattr(task._training, "score_answer", scorer)
    assert task.score(task.held_out(1)[0], "4") == score


def test_a_problem_from_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="gym:chain_sum did not hand out the problem '1 \\+ 1'"):
        Gym("chain_sum").score(Problem("1 + 1", "2"), "2")


REFUSED = {
    "unknown dataset": ("chain_sums", {}, r"'chain_sums'; did you mean 'chain_sum'\?"),
    "unknown setting": ("chain_sum", {"terms": 3}, "refuses its settings.*'terms'"),
    "bad setting": ("chain_sum", {"min_terms": 9, "max_terms": 2}, "max_terms must be"),
    "no size": ("chain_sum", {"size": 0}, "size must be at least 1, not 0"),
    "none held out": ("chain_sum", {"held_out": 0}, "held_out must be at least 1, not 0"),
}


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_task_that_cannot_be_made_is_refused(name: str, settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Gym(name, **settings)


def test_without_reasoning_gym_the_way_to_install_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "apportion\[gym\]"'):
        Gym("chain_sum")
