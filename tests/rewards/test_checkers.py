"""Outcome checkers: what counts as right, what is refused, and what must never hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.rewards import checkers, math_judge
from apportion.rewards.checkers import (
    CHECKERS,
    checker,
    exact,
    last_boxed,
    last_hashed,
    last_tagged,
    matches,
    math_equal,
)

RIGHT = {
    "bare number": ("18", "18"),
    "boxed": (r"so we get \boxed{18}.", "18"),
    "boxed with a unit": (r"\boxed{18 \text{ eggs}}", "18"),
    "boxed with a full stop": (r"\boxed{18.}", "18"),
    "gsm8k": ("9 * 2 = 18\n#### 18", "18"),
    "gsm8k with a unit": ("#### 18 dollars", "18"),
    "gsm8k on both sides": ("#### 18", "She sells 9.\n#### 18"),
    "tags": ("<think>16?</think> <answer>18</answer> It is not 20.", "18"),
    "tags around prose": ("<answer>the price is $18</answer>", "18"),
    "expression in tags": ("<answer>1 + x</answer>", "x+1"),
    "as long as can be compared": (r"\boxed{" + "1" * 999 + "}", "0" + "1" * 999),
    "too long to compare, but the same": ("1" * 1001, "1" * 1001),
    "end of a long text": ("Let me think again. " * 200 + "It is 18.", "18"),
    "last number": ("She has 9 eggs at $2 each, which makes $18 a day.", "18"),
    "bold": ("The answer is **18**.", "18"),
    "thousands": ("It cost $70,000.", "70000"),
    "decimal": ("18.00", "18"),
    "fraction": (r"\boxed{\frac{3}{4}}", "0.75"),
    "percent": ("That is 50%.", "0.5"),
    "negative": ("it is -5", "-5"),
    "expression": (r"Thus $(x-1)(x+1)$", "x^2-1"),
    "expression in another order": (r"\boxed{1+x}", "x+1"),
    "pair": (r"\boxed{(1, 2)}", "(1,2)"),
    "unknown solved for": (r"\boxed{x=5}", "5"),
    "odd characters": ("\x00\ud800 it is 5", "5"),
}
WRONG = {
    "another number": ("17", "18"),
    "nothing": ("", "18"),
    "no number": ("I do not know.", "18"),
    "right number, not last": ("18, no, 20", "18"),
    "right box, not last": (r"\boxed{18} or rather \boxed{17}", "18"),
    "box before number": (r"\boxed{17} is near 18", "18"),
    "gsm8k before number": ("#### 17\nor 18", "18"),
    "right number inside a power": ("$x^2$", "2"),
    "sign lost": ("it is 5", "-5"),
    "pair turned round": (r"\boxed{(2, 1)}", "(1,2)"),
    "answer blank": ("18", " "),
    "both blank": ("", ""),
    "too long to compare": (r"\boxed{" + "1" * 1001 + "}", "1" * 1001),
}


@pytest.mark.parametrize(("response", "answer"), RIGHT.values(), ids=RIGHT.keys())
def test_an_equal_number_or_expression_is_right(response: str, answer: str) -> None:
    assert math_equal(response, answer) == 1.0


@pytest.mark.parametrize(("response", "answer"), WRONG.values(), ids=WRONG.keys())
def test_anything_else_is_wrong(response: str, answer: str) -> None:
    assert math_equal(response, answer) == 0.0


HOSTILE = {
    "braces": "{" * 50_000,
    "open boxes": r"\boxed{" * 20_000,
    "open tags": "<answer>" * 20_000,
    "hashes": "#" * 50_000,
    "nested brackets": "$" + "(" * 450 + "5" + ")" * 450 + "$",
    "many digits": "1" * 50_000,
    "many digits boxed": r"\boxed{" + "1" * 50_000 + "}",
    "nested roots": r"\sqrt{" * 200 + "4" + "}" * 200,
    "a number beyond memory": r"\boxed{10^{10^{11}}}",
}


@pytest.mark.parametrize("response", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_wrong_at_once_and_raises_nothing(response: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_judge, "LIMIT_S", 0.5)
    started = time.monotonic()
    assert math_equal(response, "18") == 0.0
    assert time.monotonic() - started < 10


def test_a_comparison_without_end_is_wrong_and_the_next_one_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math_judge, "LIMIT_S", 0.5)
    assert math_equal(r"\boxed{9^{9^{9^{9}}}}", "18") == 0.0
    monkeypatch.undo()
    assert math_equal(r"\boxed{18}", "18") == 1.0


def test_any_thread_may_judge_and_verdicts_do_not_mix() -> None:
    verdicts: dict[int, float] = {}

    def judge(number: int) -> None:
        verdicts[number] = math_equal(f"#### {number}", str(number - number % 2))

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {number: float(number % 2 == 0) for number in range(20)}


def test_without_math_verify_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    checkers._require_math_verify.cache_clear()
    with pytest.raises(InputError, match=r'pip install "apportion\[train\]"'):
        math_equal("18", "18")


MARKED = {
    "box with braces": (last_boxed, r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "box with an escaped brace": (last_boxed, r"\boxed{\{1\}}", r"\{1\}"),
    "last of two boxes": (last_boxed, r"\boxed{1} \fbox{2}", "2"),
    "box in a box": (last_boxed, r"\boxed{\boxed{5}}", "5"),
    "box left open": (last_boxed, r"\boxed{1} \boxed{2", "1"),
    "no box": (last_boxed, "{5}", None),
    "last hashes": (last_hashed, "#### 1\n#### 2\nfoo", "2"),
    "hashes within a line": (last_hashed, "so #### 3 ", "3"),
    "nothing after the hashes": (last_hashed, "####", None),
    "last tags": (last_tagged, "<answer>1</answer><answer> 2 </answer>", "2"),
    "tag left open": (last_tagged, "<answer>1</answer><answer>2", "1"),
    "no opening tag": (last_tagged, "1</answer>", None),
    "no tags": (last_tagged, "1", None),
}


@pytest.mark.parametrize(("find", "text", "found"), MARKED.values(), ids=MARKED.keys())
def test_the_last_closed_marker_counts(find, text, found) -> None:  # type: ignore[no-untyped-def]
    assert find(text) == found


def test_exact_compares_all_but_the_blanks_at_the_ends() -> None:
    assert exact(" Paris\n", "Paris") == 1.0
    assert exact("paris", "Paris") == 0.0
    assert exact("In Paris", "Paris") == 0.0


def test_matches_compares_what_the_last_match_holds() -> None:
    check = matches(r"Answer: *(\w+)")
    assert check("Answer: 3\nAnswer: 4", "4") == 1.0
    assert check("Answer: 3\nAnswer: 4", "3") == 0.0
    assert check("4", "4") == 0.0
    assert matches(r"\d+")("from 3 to 4", "4") == 1.0
    assert matches(r"(\d+) (\w+)")("4 apples", "4") == 1.0


def test_a_broken_pattern_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"'\(' is not a regular expression: missing \)"):
        matches("(")


def test_every_listed_checker_resolves_by_its_name() -> None:
    assert {name: checker(name) for name in CHECKERS} == CHECKERS


def test_an_unknown_checker_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"'math_equals'; did you mean 'math_equal'\?"):
        checker("math_equals")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, on the path; its name."""
    (tmp_path / "own_checkers.py").write_text(
        "THRESHOLD = 3\n"
        "def length(response, answer): return len(response)\n"
        "def same(response, answer): return response == answer\n"
        "def unsure(response, answer): return None\n"
        "def text(response, answer): return 'right'\n"
        "def nan(response, answer): return float('nan')\n"
        "def infinite(response, answer): return float('inf')\n"
        "def broken(response, answer): return response.no_such_method()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_checkers"


SCORES = {"int": ("length", 4.0), "bool": ("same", 1.0), "None": ("unsure", None)}


@pytest.mark.parametrize(("function", "score"), SCORES.values(), ids=SCORES.keys())
def test_a_function_of_your_own_may_return(function: str, score: float | None, own: str) -> None:
    got = checker(f"{own}:{function}")("four", "four")
    assert got == score
    assert type(got) is type(score)


REFUSED = {
    "text": ("text", r"'own_checkers:text' returned 'right' \(str\) for the response 'four'"),
    "nan": ("nan", r"'own_checkers:nan' returned nan \(float\)"),
    "infinite": ("infinite", r"'own_checkers:infinite' returned inf \(float\)"),
    "raises": ("broken", "'own_checkers:broken' raised AttributeError: .* response 'four'"),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_result_that_is_no_score_is_refused(function: str, message: str, own: str) -> None:
    check = checker(f"{own}:{function}")
    with pytest.raises(InputError, match=message):
        check("four", "four")


MISSING = {
    "module": ("no_such_module:f", "'no_such_module' could not be imported .*PYTHONPATH"),
    "empty module": (":f", "could not be imported"),
    "function": ("own_checkers:lenght", "has no 'lenght'; did you mean 'length'?"),
    "not a function": ("own_checkers:THRESHOLD", "cannot be called as 'THRESHOLD'"),
}


@pytest.mark.parametrize(("name", "message"), MISSING.values(), ids=MISSING.keys())
def test_a_function_that_is_not_there_is_refused(name: str, message: str, own: str) -> None:
    with pytest.raises(InputError, match=message):
        checker(name)


def test_the_judge_ends_with_close_and_starts_again_when_needed() -> None:
    assert math_equal("it is 18", "18") == 1.0
    child = math_judge.judge._child
    assert child is not None
    math_judge.judge.close()
    assert child.returncode is not None
    assert math_equal("it is 18", "18") == 1.0


def test_a_judge_that_was_ended_from_outside_is_started_again() -> None:
    assert math_equal("it is 18", "18") == 1.0
    child = math_judge.judge._child
    assert child is not None
    child.kill()
    child.wait()
    assert math_equal("it is 18", "18") == 1.0


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The source file of a math-verify that the judge loads in place of the real one."""
    math_judge.judge.close()
    (tmp_path / "math_verify").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path / "math_verify" / "__init__.py"
    math_judge.judge.close()


def test_what_math_verify_prints_or_raises_does_not_disturb_the_verdicts(fake: Path) -> None:
    fake.write_text(
        "def parse(text, **settings):\n"
        "    print('1')\n"
        "    return 1 / 0 if 'bad' in text else text\n"
        "def verify(right, said, **settings): return right == said\n"
    )
    assert math_equal("#### 17", "18") == 0.0
    child = math_judge.judge._child
    assert math_equal("#### bad", "18") == 0.0
    assert math_equal("#### 18", "18") == 1.0
    assert math_judge.judge._child is child


def test_a_math_verify_that_does_not_load_is_refused_with_what_to_run(fake: Path) -> None:
    fake.write_text("import no_such_module")
    with pytest.raises(InputError, match=r'does not start.*-c "import math_verify"'):
        math_equal("#### 17", "18")
