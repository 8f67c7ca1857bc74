"""A judge who fails is data, and no crash."""

from __future__ import annotations

import time

import pytest

from apportion.errors import InputError
from apportion.rewards.checkers import checker
from apportion.tasks.problem import Problem
from apportion.tasks.prompts import Prompts
from apportion.train.judging import Verdict, judged, refuse_if_all_failed

PROBLEM = Problem("2 + 2", "4")


def moody(response: str, answer: str) -> object:
    """Does to a response what it says."""
    if response == "raise":
        raise ValueError("no mood for this")
    if response == "hang":
        time.sleep(30)
    return {"nan": float("nan"), "none": None, "list": [1.0, 0.0], "text": "good"}.get(response, 1.0)


def verdicts(monkeypatch: pytest.MonkeyPatch, *responses: str) -> list[Verdict]:
    monkeypatch.setitem(__import__("sys").modules, "moods", __import__("types").SimpleNamespace(moody=moody))
    task = Prompts("file", (PROBLEM,), (PROBLEM,), checker("moods:moody"))
    return judged(task, [(PROBLEM, response) for response in responses], seconds=0.3)


@pytest.mark.parametrize(
    ("response", "word"),
    [
        pytest.param("raise", "raised ValueError: no mood for this", id="raises"),
        pytest.param("nan", "returned nan", id="nan"),
        pytest.param("list", "returned [1.0, 0.0]", id="wrong-length"),
        pytest.param("text", "returned 'good'", id="text"),
        pytest.param("hang", "did not answer within 0.3 s", id="hangs"),
    ],
)
def test_an_answer_that_the_judge_fails_on_stays_unscored_and_the_others_are_judged(
    monkeypatch: pytest.MonkeyPatch, response: str, word: str
) -> None:
    found = verdicts(monkeypatch, "fine", response, "fine", response, "fine")
    assert [verdict.score for verdict in found] == [1.0, None, 1.0, None, 1.0]
    refuse_if_all_failed(found)
    complaints = [verdict.complaint for verdict in found if verdict.complaint is not None]
    assert len(complaints) == 2
    assert all(word in complaint for complaint in complaints), complaints


def test_a_judge_who_was_given_up_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Slow:
        def score(self, problem: Problem, response: str) -> float:
            asked.append(response)
            time.sleep(0.4 if response == "slow" else 0)
            return 1.0

    found = judged(Slow(), [(PROBLEM, word) for word in ("a", "slow", "b", "c")], seconds=0.2)
    time.sleep(0.5)
    assert [verdict.score for verdict in found] == [1.0, None, 1.0, 1.0]
    assert asked == ["a", "slow", "b", "c"]


def test_none_is_a_verdict_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts(monkeypatch, "none", "fine")
    assert found == [Verdict(None), Verdict(1.0)]
    refuse_if_all_failed(found)


def test_a_judge_who_fails_on_everything_is_refused_by_what_he_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"not one of 2 answers could be judged; the first: .*no mood for this"):
        refuse_if_all_failed(verdicts(monkeypatch, "raise", "raise"))


def test_nothing_asked_is_nothing_wrong() -> None:
    refuse_if_all_failed(judged(None, [], seconds=1.0))
