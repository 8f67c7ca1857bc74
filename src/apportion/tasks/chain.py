"""The embedded task: chains of additions and subtractions, worked one line a step.

A prompt is the chain, one `~` for every free letter wanted at the head of a line, and `?`:

    47+5-3~~?

The answer is one line a step, then the value alone:

    bd47+5=52
    fa52-3=49
    49

The letters (a to h) are chosen freely and change nothing: like the wording of real language,
they are many sampled tokens that do not matter. A step can go wrong, and an honest writer then
continues from the wrong value; so there is always one line where an answer was lost.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass

from apportion.errors import InputError
from apportion.tasks.problem import Problem

LETTERS = "abcdefgh"
MARK = "~"
LOWEST, HIGHEST = 20, 79
"""True running values lie within these two, so that slips still have two digits."""
SLIPS = (-10, -2, -1, 1, 2, 10)
"""What a wrong step adds to its result."""
FARTHEST = 20
"""How far slips may carry a running value from the true one."""
HELD_OUT_SEED = 20_000_003
HELD_OUT_SHARE = 8
"""One chain in this many is never drawn for training."""

_PROMPT = re.compile(r"(\d+)((?:[+-]\d)+)(~*)\?")
_STEP = re.compile(r"[a-h]*(\d+)([+-])(\d+)=(\d+)")


@dataclass(frozen=True)
class Chain:
    """Chains of `steps` steps, with `wording` free letters at the head of each line."""

    steps: int = 6
    wording: int = 0

    def __post_init__(self) -> None:
        if self.steps < 2 or self.wording < 0:
            raise InputError(
                f"Chain(steps={self.steps}, wording={self.wording}): steps must be at least 2 and wording at least 0"
            )

    @property
    def name(self) -> str:
        return f"chain-{self.steps}-{self.wording}"

    def sample(self, count: int, rng: random.Random) -> list[Problem]:
        """Draw `count` training problems; none is ever a held-out one."""
        problems: list[Problem] = []
        while len(problems) < count:
            chain, answer = _draw(self.steps, rng)
            if not _is_held_out(chain):
                problems.append(self._problem(chain, answer))
        return problems

    def held_out(self, count: int) -> list[Problem]:
        """Return the first `count` of a fixed list of distinct problems.

        The list depends on `steps` alone, so that settings of `wording` share their chains.
        """
        rng = random.Random(HELD_OUT_SEED + self.steps)
        found: dict[str, int] = {}
        for _ in range(1000 + 100 * count):
            if len(found) == count:
                break
            chain, answer = _draw(self.steps, rng)
            if _is_held_out(chain):
                found[chain] = answer
        if len(found) < count:
            raise InputError(
                f"{self.name} was asked for {count} held-out problems and has about {len(found)}: "
                "ask for fewer, or for longer chains"
            )
        return [self._problem(chain, answer) for chain, answer in found.items()]

    def score(self, problem: Problem, response: str) -> float:
        """Return 1.0 if the last line is the answer and nothing else, else 0.0."""
        lines = response.strip().split("\n")
        return float(lines[-1] == problem.answer)

    def _problem(self, chain: str, answer: int) -> Problem:
        return Problem(prompt=f"{chain}{MARK * self.wording}?", answer=str(answer))


def write_answer(problem: Problem, rng: random.Random, error: float = 0.0) -> str:
    """Write an answer whose steps each go wrong with probability `error`.

    A wrong step adds one of `SLIPS` to its result; the rest continues honestly from there.
    Two slips may cancel, so that the last line of an answer with wrong steps can still be right.
    """
    start, moves, wording = _read(problem)
    true = value = start
    lines = []
    for sign, operand in moves:
        letters = "".join(rng.choices(LETTERS, k=wording))
        true += _signed(sign, operand)
        result = value + _signed(sign, operand)
        if rng.random() < error:
            result += rng.choice([s for s in SLIPS if abs(result + s - true) <= FARTHEST])
        lines.append(f"{letters}{value}{sign}{operand}={result}")
        value = result
    return "\n".join([*lines, str(value)])


def judge_steps(problem: Problem, response: str) -> list[bool]:
    """Judge every line of a response by its text alone.

    A step is right if it starts from the result of the line before (the first from the
    chain's start), makes the chain's next move, and computes it rightly; the answer line is
    right if it repeats the last result. So an honest line after a wrong one is right. A line
    that cannot be read is wrong, and so are the line after it and lines beyond the answer.
    """
    start, moves, _ = _read(problem)
    value: int | None = start
    verdicts = []
    for index, line in enumerate(_lines(response)):
        if index < len(moves):
            right, value = _judge_step(line, value, moves[index])
        else:
            right = index == len(moves) and line == str(value)
        verdicts.append(right)
    return verdicts


def first_error(problem: Problem, response: str) -> int | None:
    """Return the index of the first wrong or missing line, or None if every line is right."""
    verdicts = judge_steps(problem, response)
    if False in verdicts:
        return verdicts.index(False)
    wanted = len(_read(problem)[1]) + 1
    return None if len(verdicts) == wanted else len(verdicts)


def _draw(steps: int, rng: random.Random) -> tuple[str, int]:
    """Draw a chain and its value."""
    value = rng.randint(LOWEST, HIGHEST)
    text = str(value)
    for _ in range(steps):
        sign, operand = rng.choice("+-"), rng.randint(1, 9)
        while not LOWEST <= value + _signed(sign, operand) <= HIGHEST:
            sign, operand = rng.choice("+-"), rng.randint(1, 9)
        value += _signed(sign, operand)
        text += f"{sign}{operand}"
    return text, value


def _is_held_out(chain: str) -> bool:
    return zlib.crc32(chain.encode()) % HELD_OUT_SHARE == 0


def _read(problem: Problem) -> tuple[int, list[tuple[str, int]], int]:
    """Return a chain's start, its moves (sign, operand), and its number of free letters."""
    match = _PROMPT.fullmatch(problem.prompt)
    if match is None:
        raise InputError(f"not a chain: {problem.prompt!r}; one looks like '47+5-3~~?'")
    start, moves, marks = match.groups()
    pairs = [(moves[i], int(moves[i + 1])) for i in range(0, len(moves), 2)]
    return int(start), pairs, len(marks)


def _lines(response: str) -> list[str]:
    """Cut a response into lines; a newline at the very end opens no further line."""
    return response.removesuffix("\n").split("\n") if response else []


def _judge_step(line: str, value: int | None, move: tuple[str, int]) -> tuple[bool, int | None]:
    """Return whether a line does `move` on `value` rightly, and the result it states."""
    match = _STEP.fullmatch(line)
    if match is None:
        return False, None
    left, sign, operand, result = match.groups()
    copied = value is not None and left == str(value) and (sign, int(operand)) == move
    return copied and int(result) == int(left) + _signed(sign, int(operand)), int(result)


def _signed(sign: str, operand: int) -> int:
    return operand if sign == "+" else -operand
