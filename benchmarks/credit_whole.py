"""The whole of `apportion()`: a batch of rollouts in, an advantage for every token out; its time and its memory.

python benchmarks/credit_whole.py GRPO ROWS COLUMNS     # a child of the benchmark: bytes at most
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from credit_inputs import THREADS, off_by, seeded
from measure import Section, at_most, burst, figure, in_turns, no_slower, thousandths
from memory import peak, peak_in_child
from torch import Tensor

from apportion import Ledger, Recipe, Rollouts, apportion, recipes
from apportion.rollouts import Scores
from apportion.steps import splitters

MARKER = 0
LINE = 16  # tokens
PROMPT = 100
GROUP = 8  # answers to a prompt
ADD = "elementwise add over the token grid, the limit"
SLOWER, GRIDS = 15, 6


@dataclass(frozen=True)
class Batch:
    """Columns of `Rollouts`, made into a fresh one for every call, since it keeps what it once worked out.

    number: the step of each token by the marker, from 0 in its rollout, as a plain loop finds it; -1 = not sampled.
    """

    columns: dict[str, Any]
    text: dict[str, Any]
    number: Tensor

    @property
    def tokens(self) -> Tensor:
        tokens: Tensor = self.columns["tokens"]
        return tokens

    def values(self) -> Scores:
        """A value for every step."""
        counts = self.number.amax(1) + 1
        return Scores(torch.rand(int(counts.sum()), dtype=torch.float64, generator=seeded()), counts)


def batch(rows: int, columns: int) -> Batch:
    """Rollouts of half a row to a row, prompt first, with one tool call; about a line's end every 16 tokens."""
    chance, places = seeded(), torch.arange(columns)
    lengths = torch.randint(columns // 2, columns + 1, (rows, 1), generator=chance)
    lengths[0] = columns
    valid = places < lengths
    begin = min(PROMPT, columns // 8)
    call = columns // 3
    back = call + 60 if columns >= 512 else call + 6
    turn = sum((places >= place).long() for place in (begin, call, back)).expand(rows, columns)
    mask = valid & ((turn == 1) | (turn == 3))
    tokens = torch.randint(0, LINE, (rows, columns), generator=chance)
    given = {
        "tokens": tokens,
        "rollout_of": torch.where(valid, torch.arange(rows).unsqueeze(1), -1),
        "action_mask": mask,
        "turns": torch.where(valid, turn, -1),
        "groups": torch.arange(rows) // GROUP,
        "outcome": torch.randint(0, 2, (rows,), generator=chance).float(),
        "ended": torch.ones(rows, dtype=torch.bool),
    }
    return Batch(given, _text(tokens, lengths), _plain_numbers(tokens == MARKER, turn, mask))


def laid_side_by_side(columns: dict[str, Any], segments: int) -> dict[str, Any]:
    """The same rollouts, `segments` to a row."""
    grids = {name: grid for name, grid in columns.items() if isinstance(grid, Tensor) and grid.dim() == 2}
    return columns | {name: grid.reshape(len(grid) // segments, -1) for name, grid in grids.items()}


def _text(tokens: Tensor, lengths: Tensor) -> dict[str, Any]:
    """Four characters a token, the last of a marker's a newline."""
    ends = tokens == MARKER
    rows = zip(ends.tolist(), lengths.flatten().tolist(), strict=True)
    texts = tuple("".join("abc\n" if end else "abcd" for end in row[:length]) for row, length in rows)
    begins = 4 * torch.arange(tokens.shape[1]).expand(tokens.shape)
    return {"texts": texts, "offsets": torch.stack([begins, begins + 4], -1)}


def _plain_numbers(ends: Tensor, turn: Tensor, mask: Tensor) -> Tensor:
    """Count steps token by token: a new one begins after a marker, and with every turn."""
    numbers = torch.full_like(turn, -1)
    step = torch.full_like(turn[:, 0], -1)
    opens = torch.ones_like(mask[:, 0])
    for t in range(mask.shape[1]):
        if t:
            opens = opens | (turn[:, t] != turn[:, t - 1])
        step = step + (opens & mask[:, t]).long()
        numbers[:, t] = torch.where(mask[:, t], step, -1)
        opens = torch.where(mask[:, t], ends[:, t], opens)
    return numbers


def plain_grpo(made: Batch) -> Tensor:
    """(outcome - mean) / standard deviation, group by group."""
    outcomes = made.columns["outcome"].tolist()
    credit = []
    for first in range(0, len(outcomes), GROUP):
        group = outcomes[first : first + GROUP]
        mean, spread = statistics.fmean(group), statistics.stdev(group)
        credit += [(outcome - mean) / spread if spread else 0.0 for outcome in group]
    return torch.tensor(credit, dtype=torch.float64).unsqueeze(1) * made.columns["action_mask"]


def plain_lines(made: Batch) -> Tensor:
    """The value after a step less that before it; after the last step, the outcome."""
    given = made.values()
    flat, outcomes = given.flat.tolist(), made.columns["outcome"].tolist()
    found, first = torch.zeros(made.tokens.shape, dtype=torch.float64), 0
    for n, count in enumerate(given.counts.tolist()):
        values = [*flat[first : first + count], outcomes[n]]
        credit = [values[k + 1] - values[k] for k in range(count)]
        found[n] = torch.tensor([*credit, 0.0], dtype=torch.float64)[made.number[n]]
        first += count
    return found


@dataclass(frozen=True)
class Way:
    """A recipe, the columns that it needs, and the plain loop."""

    name: str
    recipe: Recipe
    columns: Callable[[Batch], dict[str, Any]]
    plain: Callable[[Batch], Tensor]

    def run(self, rollouts: Rollouts) -> Ledger:
        return apportion(rollouts, self.recipe)

    def prepare(self, made: Batch) -> Callable[[], Rollouts]:
        return partial(Rollouts, **self.columns(made))


def _bare(made: Batch) -> dict[str, Any]:
    return made.columns


def _with_values(made: Batch) -> dict[str, Any]:
    return made.columns | {"step_values": made.values()}


def _with_text(made: Batch) -> dict[str, Any]:
    return _with_values(made) | made.text


GRPO = Way("`apportion`, grpo", recipes.grpo(), _bare, plain_grpo)
BY_MARKER = Way(
    "`apportion`, per line, by a marker token",
    replace(recipes.vineppo(), split=splitters.marker(MARKER)),
    _with_values,
    plain_lines,
)
BY_TEXT = Way("`apportion`, per line, by text", recipes.vineppo(), _with_text, plain_lines)
WAYS = {"GRPO": GRPO, "BY_MARKER": BY_MARKER, "BY_TEXT": BY_TEXT}


def whole_section(rounds: int, quick: bool) -> Section:
    rows, columns = (32, 256) if quick else (1024, 2048)
    made = batch(rows, columns)
    section = Section(
        f"D · `apportion()` on {rows:,} rollouts of up to {columns:,} tokens",
        f"Half a row to a row long, prompt first, one tool call; {len(made.values().flat):,} lines, each with a value. "
        "Memory: at most beyond what was there before the call, in float32 token grids. Each call has a fresh batch.",
        ("what", "median ms", "least ms", "× add", "token grids", "off by at most"),
    )
    grid = torch.randn(rows, columns, generator=seeded())
    bursts = {ADD: partial(burst, lambda: grid + grid)}
    errors, memory = {}, {}
    for key, way in WAYS.items():
        found = way.run(way.prepare(made)()).advantage
        errors[way.name] = figure(off_by(way.name, found, way.plain(made), made.columns["action_mask"]))
        taken = peak_in_child(__file__, key, str(rows), str(columns))
        memory[way.name] = None if taken is None else taken / grid.nbytes
        bursts[way.name] = partial(burst, way.run, way.prepare(made))
    for name, way in (("making `Rollouts` (the checks)", GRPO), ("making `Rollouts` with values and text", BY_TEXT)):
        bursts[name] = partial(burst, way.prepare(made))
    times = in_turns(bursts, rounds)
    for name, taken in times.items():
        grids = memory.get(name)
        cells = ["" if grids is None else figure(grids), errors.get(name, "")]
        section.rows.append([name, *thousandths(taken), figure(taken.median / times[ADD].median), *cells])
    for way in WAYS.values():
        section.owed.append(no_slower(f"time of {way.name}, over an add", times[way.name], times[ADD], SLOWER))
    for way in WAYS.values():
        section.owed.append(at_most(f"memory of {way.name}, in token grids", memory[way.name], GRIDS))
    return section


def main(key: str, rows: str, columns: str) -> None:
    torch.set_num_threads(THREADS)
    way, made = WAYS[key], batch(int(rows), int(columns))
    way.run(way.prepare(batch(128, 2048))())  # what is loaded and compiled at the first call is none of the batch's
    fresh = way.prepare(made)()
    print(peak(partial(way.run, fresh)))


if __name__ == "__main__":
    main(*sys.argv[1:])
