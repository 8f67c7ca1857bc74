"""What is read from the answers of servers: the shapes are those of vLLM, SGLang and llama.cpp."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.errors import InputError
from apportion.policy.server_answers import EXACT_WAYS, Reader
from apportion.policy.server_connection import UnusableError

GIVEN, BESIDE_LOGPROBS = EXACT_WAYS


def choice(index: int = 0, reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {"index": index, "text": "ab", "finish_reason": reason, **more}


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def test_choices_are_put_in_their_order() -> None:
    answer = {"choices": [choice(1, token_ids=[7]), choice(0, "length", token_ids=[5, 6, 7, 8])]}
    assert Reader(GIVEN, 3, 2, 4)(answer) == [((5, 6, 7, 8), False), ((7,), True)]


@pytest.mark.parametrize(
    "logprobs",
    [
        pytest.param({"content": [{"id": 5, "token": "a"}, {"id": 6, "token": "b"}]}, id="llama.cpp"),
        pytest.param({"tokens": ["token_id:5", "token_id:6"], "token_logprobs": [-1, -1]}, id="vLLM"),
    ],
)
def test_ids_are_found_beside_log_probabilities(logprobs: dict[str, Any]) -> None:
    answer = {"choices": [choice(logprobs=logprobs)], "usage": usage(3, 2)}
    assert Reader(BESIDE_LOGPROBS, 3, 1, 4)(answer) == [((5, 6), True)]


@pytest.mark.parametrize(
    "logprobs",
    [
        pytest.param(None, id="none"),
        pytest.param({"tokens": ["a", "b"]}, id="text"),
        pytest.param({"tokens": ["token_id:5", "b"]}, id="text among ids"),
        pytest.param({"content": [{"id": 5}, {"token": "b"}]}, id="one without"),
    ],
)
def test_log_probabilities_without_ids_give_none(logprobs: dict[str, Any] | None) -> None:
    assert Reader(BESIDE_LOGPROBS, 3, 1, 4)({"choices": [choice(logprobs=logprobs)]}) is None


def test_a_server_may_count_the_end_of_text_that_it_leaves_out() -> None:
    answer = {"choices": [choice(token_ids=[5, 6])], "usage": usage(3, 3)}
    assert Reader(GIVEN, 3, 1, 4)(answer) == [((5, 6), True)]


def test_the_count_of_several_choices_is_not_asked_after() -> None:
    answer = {"choices": [choice(0, token_ids=[5]), choice(1, token_ids=[6])], "usage": usage(3, 1)}
    assert Reader(GIVEN, 3, 2, 4)(answer) == [((5,), True), ((6,), True)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(
            {"choices": [choice(token_ids=[5])], "usage": usage(4, 1)},
            "a prompt of 3 tokens was sent and the server counted 4",
            id="another prompt",
        ),
        pytest.param(
            {"choices": [choice(token_ids=[5])], "usage": usage(3, 3)},
            "the server counted 3 and gave 1 ids",
            id="ids missing",
        ),
        pytest.param(
            {"choices": [choice(token_ids=[5, 6])], "usage": usage(3, 1)},
            "the server counted 1 and gave 2 ids",
            id="ids too many",
        ),
        pytest.param(
            {"choices": [choice(0, "length", token_ids=[5, 6, 7, 8])], "usage": usage(3, 5)},
            "the server counted 5 and gave 4 ids",
            id="one missing of those cut off",
        ),
        pytest.param(
            {"choices": [choice(token_ids=[5, 6, 7, 8, 9])]}, "4 tokens at most were asked for", id="over the limit"
        ),
        pytest.param(
            {"choices": [choice(0, "length", token_ids=[5, 6])]},
            "cut off at 2 tokens of 4: the server's context is too short for them behind a prompt of 3",
            id="context full",
        ),
        pytest.param(
            {"choices": [choice(0, token_ids=[5]), choice(1, token_ids=[6])]},
            "1 continuations were asked for and 2 came",
            id="too many choices",
        ),
    ],
)
def test_an_answer_to_something_else_is_refused(answer: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Reader(GIVEN, 3, 1, 4)(answer)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"choices": [choice(token_ids=["5"])]}, id="words for ids"),
        pytest.param({"choices": [choice(token_ids=[True])]}, id="truth for ids"),
        pytest.param({"choices": [choice(token_ids=[-1])]}, id="below zero"),
        pytest.param({"choices": [choice(token_ids=5)]}, id="a number for a list"),
        pytest.param({"choices": [choice(0, "content_filter", token_ids=[5])]}, id="filtered"),
        pytest.param({"choices": "none"}, id="no choices"),
        pytest.param({"error": "x"}, id="an error"),
        pytest.param("x", id="text"),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(answer: Any) -> None:
    with pytest.raises(UnusableError):
        Reader(GIVEN, 3, 1, 4)(answer)
