"""Generalised advantages against torchrl, verl and an elementwise add: dense, with tool gaps, packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from credit_inputs import GAMMA, LAM, Grid, dense, off_by, packed, plain_gae, with_tools
from measure import Section, Times, burst, faster, figure, in_turns, no_slower, thousandths
from peers import Peer
from torch import Tensor

from apportion import credit
from apportion.steps import splitters
from apportion.steps.grid import StepMap
from apportion.token_credit import token_gae

HEADER = ("tokens", "what", "median ms", "least ms", "× add", "× ours", "off by at most")
ADD = "elementwise add, the limit"
GAE = "`credit.gae`"
WHOLE = "`token_gae`"
STEPS = "by way of the step grid"
MAPPED = "by way of a step map made before"
SLOWER, FASTER = 10, 50

Sizes = Sequence[tuple[int, int]]


def on_tokens(grid: Grid, steps: StepMap) -> Tensor:
    """Token rewards and values in, token advantages out."""
    return steps.to_tokens(credit.gae(steps.sum(grid.rewards), steps.first(grid.values), gamma=GAMMA, lam=LAM))


def dense_section(peers: list[Peer], rounds: int, quick: bool) -> Section:
    notes = "Every token is a step. A value of every step in, an advantage of every step out."
    section = Section("A · Generalised advantages on the dense grid", notes, HEADER)
    sizes = ((8, 512), (1, 2048), (4, 1024)) if quick else ((256, 4096), (1, 131072), (64, 16384))
    for rows, columns in sizes:
        grid = dense(rows, columns)
        ours = {GAE: partial(credit.gae, grid.rewards, grid.values, gamma=GAMMA, lam=LAM)}
        times = _compare(section, grid, ours, peers, rounds)
        if (rows, columns) == sizes[0]:
            section.owed.append(no_slower(f"time of {GAE} at {grid.size} over an add", times[GAE], times[ADD], SLOWER))
        if (rows, columns) in sizes[:2]:
            _owe(section, grid, times, GAE)
    return section


def tools_section(peers: list[Peer], rounds: int, quick: bool) -> Section:
    notes = (
        "A fifth of the tokens are a tool's, in runs of about 60. Token rewards and values in, token advantages out. "
        "By way of the step grid: the map of steps is made, `credit.gae` estimates, and the map takes it back. torchrl "
        "knows no gaps."
    )
    section = Section("B · Tool gaps", notes, HEADER)
    _on_tokens(section, with_tools, quick, [peer for peer in peers if peer.name == "verl"], rounds)
    return section


def packing_section(peers: list[Peer], rounds: int, quick: bool) -> Section:
    notes = (
        "Segments of 384 to 640 tokens one after another in each row; each is a rollout to us, and ends with a done "
        "flag to torchrl. verl knows no packing."
    )
    section = Section("C · Packing", notes, HEADER)
    _on_tokens(section, packed, quick, [peer for peer in peers if peer.name == "torchrl"], rounds)
    return section


def _on_tokens(section: Section, make: Callable[[int, int], Grid], quick: bool, peers: list[Peer], rounds: int) -> None:
    for rows, columns in ((8, 1024), (1, 4096)) if quick else ((256, 4096), (1, 131072)):
        grid = make(rows, columns)
        rollouts = grid.rollouts()
        steps = splitters.every_token(rollouts)
        ours: dict[str, Callable[[], Tensor]] = {
            WHOLE: partial(token_gae, rollouts, grid.rewards, grid.values, gamma=GAMMA, lam=LAM),
            STEPS: lambda grid=grid, rollouts=rollouts: on_tokens(grid, splitters.every_token(rollouts)),
            MAPPED: partial(on_tokens, grid, steps),
        }
        _owe(section, grid, _compare(section, grid, ours, peers, rounds), WHOLE)


def _compare(
    section: Section, grid: Grid, ours: dict[str, Callable[[], Tensor]], peers: list[Peer], rounds: int
) -> dict[str, Times]:
    """Check all of them, measure them in turns, and add their rows."""
    exact = plain_gae(grid)
    errors = {name: off_by(name, run(), exact, grid.mask) for name, run in ours.items()}
    for peer in peers:
        peer.load(vars(grid) | {"gamma": GAMMA, "lam": LAM, "threads": torch.get_num_threads()})
        errors[peer.name] = off_by(peer.name, peer.result(), exact, grid.mask)
    bursts = {ADD: partial(burst, lambda: grid.rewards + grid.values)}
    bursts |= {name: partial(burst, run) for name, run in ours.items()}
    bursts |= {peer.name: peer.burst for peer in peers}
    times = in_turns(bursts, rounds)
    first = next(iter(ours))
    for name, found in times.items():
        ratios = [figure(found.median / times[other].median) for other in (ADD, first)]
        section.rows.append(
            [grid.size, name, *thousandths(found), *ratios, figure(errors[name]) if name in errors else ""]
        )
    return times


def _owe(section: Section, grid: Grid, times: dict[str, Times], ours: str) -> None:
    """At least fifty times as fast as the faster of the peers that can do it."""
    peers = [name for name in ("torchrl", "verl") if name in times]
    best = min(peers, key=lambda name: times[name].median, default="the faster peer")
    section.owed.append(faster(f"time of {best} at {grid.size} over {ours}", times[ours], times.get(best), FASTER))
