"""Outcome checkers: how right a whole answer is.

A checker is a function `(response, answer) -> float`: 1.0 for right, 0.0 for wrong. A checker of
your own, named as `module:function`, may also return a bool, another finite number, or `None` for
"could not be scored", which is not the same as 0.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import numbers
import re
from collections.abc import Callable

from apportion.errors import InputError, nearest
from apportion.rewards.math_judge import judge

Checker = Callable[[str, str], float | None]

MAX_CHARS = 1000
"""Longest expression that is compared; of an answer without a marker, the tail that is read."""

_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s")
_WITH_UNIT = re.compile(r"(-?[\d.,]*\d)(?: [A-Za-z]{3,})+")


def exact(response: str, answer: str) -> float:
    """Say whether the response is the answer, blanks at both ends aside.

    >>> exact(" yes\\n", "yes")
    1.0
    """
    return float(response.strip() == answer.strip())


def matches(pattern: str) -> Checker:
    """Return a checker that finds the response's answer with a regular expression.

    What the last match holds (its first group if there is one) must equal the answer, blanks at
    both ends aside; no match is wrong.

    Raises: InputError if the pattern is no regular expression.

    >>> matches(r"Answer: (.*)")("Let me see.\\nAnswer: 4", "4")
    1.0
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"{pattern!r} is not a regular expression: {error}.") from error
    group = min(compiled.groups, 1)

    def check(response: str, answer: str) -> float:
        found = [match.group(group) or "" for match in compiled.finditer(response)]
        return exact(found[-1], answer) if found else 0.0

    return check


def last_tagged(text: str) -> str | None:
    """Return what the last closed `<answer>...</answer>` holds, or None."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def last_boxed(text: str) -> str | None:
    r"""Return what the last closed `\boxed{...}` (or `\fbox{...}`) holds, or None.

    >>> last_boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    last, end = -1, -1
    opened: list[int] = []  # where a box's text starts; -1 for a brace that is no box
    for brace in _BRACE.finditer(text):
        if brace["box"]:
            opened.append(brace.end())
        elif brace["open"]:
            opened.append(-1)
        elif brace["close"] and opened:
            start = opened.pop()
            if start > last:
                last, end = start, brace.start()
    return text[last:end].strip() if last >= 0 else None


def last_hashed(text: str) -> str | None:
    """Return what follows the last `####` of the text on its line (as GSM8K writes), or None.

    >>> last_hashed("9 * 2 = 18\\n#### 18")
    '18'
    """
    for line in reversed(text.splitlines()):
        _, _, after = line.rpartition("####")
        if "####" in line and after.strip():
            return after.strip()
    return None


def math_equal(response: str, answer: str) -> float:
    r"""Say whether the response ends in the same number or expression as the answer.

    Final answer of either: inside the last `<answer>` tags if there are any, then the last
    `\boxed{...}`, else what follows the last `####`, else the last number or `$...$` expression of
    the last 1000 characters. math-verify compares them, so 1/2 = 0.5 and 1,080 = 1080; one that
    takes over 5 seconds, or is longer than 1000 characters, is wrong. It runs in a child process,
    so any thread may call this, and no text can hang or end the caller. For answers in words use
    `exact`: math-verify reads a word as a product of letters.

    Raises: InputError if math-verify is not installed.

    >>> math_equal(r"so half of them: \boxed{\frac{1}{2}}", "0.5")
    1.0
    """
    _require_math_verify()
    if not answer.strip():
        return 0.0
    if exact(response, answer) == 1.0:
        return 1.0
    right, said = _as_math(answer, bare=True), _as_math(response, bare=False)
    if max(len(right), len(said)) > MAX_CHARS + len(r"\boxed{}"):
        return 0.0
    return float(judge.agree(right, said))


CHECKERS: dict[str, Checker] = {"math_equal": math_equal, "exact": exact}
"""Checkers by the name that the command line and settings files use."""


def checker(name: str) -> Checker:
    """Return the checker of that name, or your own function, named as `module:function`.

    Raises: InputError for an unknown name (with the nearest known one), for a module or function
    that is not there, and, when the checker is called, for a result that is no score.

    >>> checker("exact") is exact
    True
    """
    if name in CHECKERS:
        return CHECKERS[name]
    module_name, colon, function_name = name.partition(":")
    if not colon:
        known = ", ".join(CHECKERS)
        raise InputError(
            f"There is no checker named {name!r}{nearest(name, CHECKERS)} "
            f"Use one of {known}, or a function of your own as module:function."
        )
    return _checked(name, _load(module_name, function_name))


def _load(module_name: str, function_name: str) -> Callable[[str, str], object]:
    asked = f"{module_name}:{function_name}"
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"Checker {asked!r}: module {module_name!r} could not be imported "
            f"({type(error).__name__}: {error}). Its folder must be on PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        what = "has no" if function is None else "holds a value that cannot be called as"
        hint = nearest(function_name, dir(module))
        raise InputError(f"Checker {asked!r}: {module_name} {what} {function_name!r}{hint}")
    checked: Callable[[str, str], object] = function
    return checked


def _checked(name: str, function: Callable[[str, str], object]) -> Checker:
    @functools.wraps(function)
    def check(response: str, answer: str) -> float | None:
        try:
            score = function(response, answer)
        except Exception as error:
            raise InputError(
                f"Checker {name!r} raised {type(error).__name__}: {error} "
                f"for the response {response[:80]!r} and the answer {answer[:80]!r}."
            ) from error
        if score is None:
            return None
        if isinstance(score, numbers.Real) and math.isfinite(score):
            return float(score)
        raise InputError(
            f"Checker {name!r} returned {score!r} ({type(score).__name__}) for the response "
            f"{response[:80]!r}. It must return a finite number, True or False, or None for an "
            "answer that could not be scored."
        )

    return check


def _as_math(text: str, *, bare: bool) -> str:
    """Return the text's final answer as math-verify reads it best; `bare`: no prose around it."""
    tagged = last_tagged(text)
    inner = text if tagged is None else tagged
    final = last_boxed(inner)
    if final is None:
        final = last_hashed(inner)
    if final is None and (bare or (tagged is not None and not _PROSE.search(inner))):
        final = inner
    if final is None:
        return inner[-MAX_CHARS:]
    final = final.strip(" \t\n*").rstrip(".,;")
    with_unit = _WITH_UNIT.fullmatch(final)
    return f"\\boxed{{{with_unit.group(1) if with_unit else final}}}"


@functools.cache
def _require_math_verify() -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise InputError(
            "math_equal needs the package math-verify, which is not installed. "
            'Install it with: pip install "apportion[train]"'
        )
