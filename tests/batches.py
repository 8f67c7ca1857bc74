"""Batches for the tests: rollouts from a picture of their mask, random ones, and one batch laid out otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from jaxtyping import config
from torch import Tensor

from apportion.ledger import Ledger, Recipe, apportion
from apportion.rollouts import Rollout, Rollouts, collate

NAN = float("nan")
INF = float("inf")
SIXTEENTHS = st.integers(-64, 64).map(lambda n: n / 16)  # their sums are exact in any order
FLOATS = st.floats(-10, 10, width=32)
FEWER = settings(max_examples=15)  # for a test that runs for each of several functions
PIECES = st.sampled_from(["b", "c=", "\n", "d\n", "\n\n", "\ne", ""])


def row(picture: str, pieces: Sequence[str] | None = None, **columns: Any) -> Rollout:
    """A rollout from a picture: `a` is a token of the policy, any other letter one that it did not sample."""
    if pieces is not None:
        ends = accumulate(map(len, pieces), initial=0)
        columns |= {"text": "".join(pieces), "offsets": list(pairwise(ends))}
    columns.setdefault("group", "g")
    return Rollout(tokens=list(range(len(picture))), action_mask=[letter == "a" for letter in picture], **columns)


@contextmanager
def types_unchecked() -> Iterator[None]:
    """Call the package as a user does, without the shape and type checks that all tests run under."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)


def batch_of(*pictures: str) -> Rollouts:
    """One rollout a picture, scored 0."""
    return collate([row(picture, outcome=0.0) for picture in pictures])


@st.composite
def random_rows(draw: st.DrawFn, numbers: st.SearchStrategy[float] = SIXTEENTHS, most: int = 6) -> list[Rollout]:
    """Rollouts of mixed groups with tool gaps, several turns, some unscored and some without any action."""
    return [draw(_random_row(numbers)) for _ in range(draw(st.integers(1, most)))]


@st.composite
def _random_row(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> Rollout:
    turns = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), max_size=3))
    picture = "p" * draw(st.integers(0, 2)) + "".join("a" * own + "t" * tool for own, tool in turns)
    actions = picture.count("a")
    outcome = draw(st.one_of(numbers, numbers, st.none()))
    scores = st.lists(numbers, min_size=actions, max_size=actions).map(tuple)
    pieces = draw(st.lists(PIECES, min_size=len(picture), max_size=len(picture)))
    columns = {
        "group": draw(st.sampled_from("xyz")),
        "outcome": outcome,
        "ended": draw(st.booleans()),
        "logprobs": [-0.5 if letter == "a" else NAN for letter in picture],
        "step_values": None if outcome is None or actions == 0 else draw(scores),
        "step_rewards": draw(st.one_of(st.none(), scores)),
        "end_value": draw(numbers),
    }
    with types_unchecked():  # the checker draws random numbers of its own, which hypothesis forbids in here
        return row(picture, pieces, **columns)


def ledger_of(batch: Rollouts, recipe: Recipe) -> Ledger:
    """Apportion a batch in which rollouts without actions are no surprise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(no sampled token|where they stood is lost)")
        return apportion(batch, recipe)


def poisoned(batch: Rollouts, extra: int) -> Rollouts:
    """The same batch, wider, with garbage wherever the policy sampled nothing."""

    def widened(grid: Tensor, fill: float) -> Tensor:
        return torch.nn.functional.pad(grid, (0, extra), value=fill)

    sampled = widened(batch.action_mask, False)
    garbage = torch.tensor([NAN, INF, -INF, 1e9]).repeat(sampled.numel())[: sampled.numel()].view_as(sampled)
    assert batch.logprobs is not None
    assert batch.offsets is not None
    spans = [torch.where(sampled, widened(batch.offsets[..., side], 0), 10**6) for side in (0, 1)]
    return replace(
        batch,
        tokens=torch.where(sampled, widened(batch.tokens, 0), 10**9),
        rollout_of=widened(batch.rollout_of, -1),
        action_mask=sampled,
        turns=torch.where(sampled, widened(batch.turns, 0), 77),
        logprobs=torch.where(sampled, widened(batch.logprobs, 0.0), garbage),
        offsets=torch.stack(spans, dim=-1),
    )


def recut(batch: Rollouts, width: int) -> Rollouts:
    """The same tokens, read on in rows of `width`: rollouts are cut anywhere, and several may share a row."""

    def cut(grid: Tensor, fill: float) -> Tensor:
        flat = grid[batch.valid_mask]
        short = -len(flat) % width if len(flat) else width
        tail = flat.new_full((short, *flat.shape[1:]), fill)
        return torch.cat([flat, tail]).unflatten(0, (-1, width))

    return replace(
        batch,
        tokens=cut(batch.tokens, 0),
        rollout_of=cut(batch.rollout_of, -1),
        action_mask=cut(batch.action_mask, False),
        turns=cut(batch.turns, -1),
        logprobs=None if batch.logprobs is None else cut(batch.logprobs, NAN),
        offsets=None if batch.offsets is None else cut(batch.offsets, 0),
    )
