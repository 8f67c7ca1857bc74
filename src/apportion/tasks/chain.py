"""The embedded task: chains of additions and subtractions, worked one line a step.

A prompt is a number and its moves, named A, B, C, ...; then one `~` for every free letter
wanted on a line, and `?`:

    47A+5B-3~~?

The answer is one line a move, then the value alone:

    Abd47+5=52
    Bfa52-3=49
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
NAMES = "ABCDEFGHIJKL"
MARK = "~"
LOWEST, HIGHEST = 30, 59
"""True running values lie within these two, so that slips still have two digits."""
LARGEST = 5
"""The largest move, up or down."""
SLIPS = (-3, -2, -1, 1, 2, 3)
"""What a wrong step adds to its result."""
FARTHEST = 20
"""How far slips may carry a running value from the true one."""
HELD_OUT_SEED = 20_000_003
HELD_OUT_SHARE = 8
"""One chain in this many is never drawn for training."""

_PROMPT = re.compile(r"(\d+)((?:[A-L][+-]\d)+)(~*)\?")
_STEP = re.compile(r"([A-L])[a-h]*(\d+)([+-]\d)=(\d+)")


@dataclass(frozen=True)
class Chain:
    """Chains of `steps` steps, with `wording` free letters on each line."""

    steps: int = 5
    wording: int = 2

    def __post_init__(self) -> None:
        if not 2 <= self.steps <= len(NAMES) or self.wording < 0:
            raise InputError(
                f"Chain(steps={self.steps}, wording={self.wording}): steps must be at least 2 and "
                f"at most {len(NAMES)}, wording at least 0"
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


def write_answer(problem: Problem, rng: random.Random, error: float = 0.0, begun: str = "") -> str:
    """Write an answer whose steps each go wrong with probability `error`, or what is missing of it behind `begun`.

    A wrong step adds one of `SLIPS` to its result; the rest continues honestly from there.
    Two slips may cancel, so that the last line of an answer with wrong steps can still be right.
    begun: whole lines, as a writer writes them.
    """
    true, moves, wording = _read(problem)
    value, there = true, _lines(begun)
    lines = []
    for index, move in enumerate(moves):
        true += int(move)
        if index < len(there):
            value = int(there[index].partition("=")[2])
            continue
        letters = "".join(rng.choices(LETTERS, k=wording))
        result = value + int(move)
        if rng.random() < error:
            result += rng.choice([s for s in SLIPS if abs(result + s - true) <= FARTHEST])
        lines.append(f"{NAMES[index]}{letters}{value}{move}={result}")
        value = result
    return "\n".join([*lines, str(value)] if len(there) <= len(moves) else [])


def judge_steps(problem: Problem, response: str) -> list[bool]:
    """Judge every line of a response by its text alone.

    A step is right if it names and makes the chain's next move, from the result of the line
    before (the first from the chain's start), and computes it rightly; the answer line is right
    if it repeats the last result. So an honest line after a wrong one is right. A line that
    cannot be read is wrong, and so are the line after it and any line beyond the answer.
    """
    start, moves, _ = _read(problem)
    value = str(start)
    verdicts = []
    for index, line in enumerate(_lines(response)):
        if index < len(moves):
            right, value = _judge_step(line, value, NAMES[index], moves[index])
        else:
            right = index == len(moves) and line == value
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
    for name in NAMES[:steps]:
        move = rng.choice((-1, 1)) * rng.randint(1, LARGEST)
        while not LOWEST <= value + move <= HIGHEST:
            move = rng.choice((-1, 1)) * rng.randint(1, LARGEST)
        value += move
        text += f"{name}{move:+d}"
    return text, value


def _is_held_out(chain: str) -> bool:
    return zlib.crc32(chain.encode()) % HELD_OUT_SHARE == 0


def _read(problem: Problem) -> tuple[int, list[str], int]:
    """Return a chain's start, its moves (as '+5'), and its number of free letters."""
    match = _PROMPT.fullmatch(problem.prompt)
    if match is None:
        raise InputError(f"not a chain: {problem.prompt!r}; one looks like '47A+5B-3~~?'")
    start, moves, marks = match.groups()
    return int(start), re.findall(r"[+-]\d", moves), len(marks)


def _lines(response: str) -> list[str]:
    """Cut a response into lines; a newline at the very end opens no further line."""
    return response.removesuffix("\n").split("\n") if response else []


def _judge_step(line: str, value: str, name: str, move: str) -> tuple[bool, str]:
    """Return whether a line makes `move` on `value` rightly, and the result it states."""
    match = _STEP.fullmatch(line)
    if match is None:
        return False, "unreadable"
    *stated, result = match.groups()
    return stated == [name, value, move] and int(result) == int(value) + int(move), result


def exact_value(problem: Problem, response: str, error: float) -> float:
    """Work out the probability that an answer which begins with these whole lines ends right.

    By a writer as `write_answer` is: each line that is still to come errs with probability `error`, by one of `SLIPS`,
    and the rest continues honestly. 0 where a line cannot be read or follows from nothing that stands there.
    """
    true, moves, _ = _read(problem)
    value, lines = str(true), _lines(response)
    for name, move, line in zip(NAMES, moves, lines, strict=False):
        match = _STEP.fullmatch(line)
        if match is None or list(match.groups()[:3]) != [name, value, move]:
            return 0.0
        value, true = match.group(4), true + int(move)
    if len(lines) > len(moves):
        return float(lines[len(moves) :] == [problem.answer])
    chances = {int(value) - true: 1.0}
    for _ in moves[len(lines) :]:
        chances = _spread(chances, error)
    return chances.get(0, 0.0)


def _spread(chances: dict[int, float], error: float) -> dict[int, float]:
    """How far from the true value a writer is after one more line, from how far before it."""
    after: dict[int, float] = {}
    for off, chance in chances.items():
        slips = [slip for slip in SLIPS if abs(off + slip) <= FARTHEST]
        for slip, share in [(0, 1 - error), *((slip, error / len(slips)) for slip in slips)]:
            after[off + slip] = after.get(off + slip, 0.0) + chance * share
    return after
