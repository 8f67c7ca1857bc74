"""Time a token as batches grow: level where the work is linear in rows, columns and segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import credit_whole as whole
from credit_inputs import GAMMA, LAM, dense
from credit_inputs import packed as packed_grid
from measure import Burst, Section, at_most, burst, figure, in_turns

from apportion import Rollouts, apportion, credit
from apportion.token_credit import token_gae

Size = tuple[int, int, int]  # rows, columns, segments a row
Make = Callable[[int, int, int], Burst]

FACTORS = (1, 2, 4)
LEVEL = 1.5
"""Times a token may cost at four times the size; were the work quadratic, it would cost four."""


def growth_section(rounds: int, quick: bool) -> Section:
    section = Section(
        "F · Growth",
        "Nanoseconds a token at one, two and four times the rows, columns or segments. More segments are more rollouts "
        "in the same tokens.",
        ("what", "what grows", "from", "1 ×", "2 ×", "4 ×", "4 × over 1 ×"),
    )
    rows, columns = (16, 512) if quick else (256, 2048)
    for name, make in (("`credit.gae`", _gae), ("`token_gae`, packed", _packed)):
        _grow(section, name, make, (rows, columns, 4), rounds)
    for way in (whole.GRPO, whole.BY_MARKER):
        _grow(section, way.name, partial(_whole, way), (rows, columns, 1), rounds)
    return section


def _grow(section: Section, name: str, make: Make, size: Size, rounds: int) -> None:
    rows, columns, segments = size
    kinds: dict[str, Callable[[int], Size]] = {
        "rows": lambda factor: (rows * factor, columns, segments),
        "columns": lambda factor: (rows, columns * factor, segments),
        "segments": lambda factor: (rows, columns, segments * factor),
    }
    if make is _gae:
        del kinds["segments"]  # it sees a row a rollout, and nothing of segments
    bursts = {(kind, factor): make(*grown(factor)) for kind, grown in kinds.items() for factor in FACTORS}
    times = in_turns(bursts, rounds)
    for kind, grown in kinds.items():
        tokens = [prod(grown(factor)[:2]) for factor in FACTORS]
        found = [times[kind, factor].median / count * 1e9 for factor, count in zip(FACTORS, tokens, strict=True)]
        begin = f"{rows} × {columns}" + (f", {segments} a row" if kind == "segments" else "")
        section.rows.append([name, kind, begin, *map(figure, found), figure(found[-1] / found[0])])
        what = f"time a token of {name}, at four times the {kind} over that at one"
        section.owed.append(at_most(what, found[-1] / found[0], LEVEL))


def _gae(rows: int, columns: int, segments: int) -> Burst:
    grid = dense(rows, columns)
    return partial(burst, partial(credit.gae, grid.rewards, grid.values, gamma=GAMMA, lam=LAM))


def _packed(rows: int, columns: int, segments: int) -> Burst:
    grid = packed_grid(rows, columns, columns // segments)
    rollouts = grid.rollouts()
    return partial(burst, partial(token_gae, rollouts, grid.rewards, grid.values, gamma=GAMMA, lam=LAM))


def _whole(way: whole.Way, rows: int, columns: int, segments: int) -> Burst:
    made = whole.batch(rows * segments, columns // segments)
    given = whole.laid_side_by_side(way.columns(made), segments)
    return partial(burst, lambda rollouts: apportion(rollouts, way.recipe), partial(Rollouts, **given))
