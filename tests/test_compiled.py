"""When the compiled loops may run. What they compute is held against plain torch where they are used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from apportion import compiled

pytest.importorskip("numba")

FLOATS = torch.zeros(2**17)


@pytest.mark.parametrize(
    ("grids", "ready"),
    [
        pytest.param((FLOATS, FLOATS), True, id="float32"),
        pytest.param((FLOATS.double(), FLOATS.double()), True, id="float64"),
        pytest.param((FLOATS.bool(),), True, id="a mask"),
        pytest.param((FLOATS[:1], FLOATS.long()), True, id="numbers and a large grid of places"),
        pytest.param((FLOATS, FLOATS.double()), False, id="two types"),
        pytest.param((FLOATS.bfloat16(),), False, id="a type that numpy has not"),
        pytest.param((FLOATS[1:],), False, id="too small"),
        pytest.param((FLOATS, FLOATS.clone().requires_grad_()), False, id="a gradient is wanted"),
        pytest.param((FLOATS.to("meta"),), False, id="another device"),
    ],
)
def test_a_loop_runs_on_large_plain_grids_on_the_cpu(grids: tuple[Tensor, ...], ready: bool) -> None:
    assert compiled.ready(*grids) is ready


def test_without_gradients_a_parameter_is_a_grid_like_any_other() -> None:
    with torch.no_grad():
        assert compiled.ready(FLOATS.clone().requires_grad_())


def test_without_numba_no_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_found", lambda: False)

    assert not compiled.ready(FLOATS)


def loop(name: str) -> Callable[..., None]:
    """A loop as it is written, not compiled: quick on a few tokens."""
    found = getattr(pytest.importorskip("apportion.compiled.loops"), name)
    return getattr(found, "py_func", found)


def laid_out(lengths: list[int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rollouts side by side, a few tokens between them: which tokens are sampled, each one's first and its last."""
    chance = np.random.default_rng(seed)
    sampled, first, last = [False], [], []
    for length in lengths:
        own = chance.random(length) < 0.7
        own[0] = own[-1] = True
        first.append(len(sampled))
        sampled += [*own.tolist(), False, False]
        last.append(len(sampled) - 3)
    return np.array(sampled), np.array(first), np.array(last)


@pytest.mark.parametrize("lengths", [[1], [5, 1, 9], [2, 2], [40_000], [3, 16_384, 2, 16_385, 33_000, 7]])
@pytest.mark.parametrize(("gamma", "decay"), [(1.0, 1.0), (0.9, 0.7), (1.0, 0.0), (0.5, 1.0)])
def test_credit_to_go_is_what_a_plain_loop_finds(lengths: list[int], gamma: float, decay: float) -> None:
    sampled, first, last = laid_out(lengths, seed=len(lengths))
    chance = np.random.default_rng(0)
    rewards, values = chance.normal(size=(2, len(sampled)))
    found = np.zeros(len(sampled))

    loop("credit_to_go")(rewards, values, sampled, found, first, last, np.float64(gamma), np.float64(decay))

    expected = np.zeros(len(sampled))
    for begin, end in zip(first, last, strict=True):
        value = later = 0.0
        for t in range(end, begin - 1, -1):
            if sampled[t]:
                expected[t] = later = rewards[t] - values[t] + gamma * value + decay * later
                value = values[t]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_running_count_is_what_a_plain_loop_finds(closing: bool, seed: int) -> None:
    chance = np.random.default_rng(seed)
    sampled, start, last = laid_out([4, 1, 9, 2, 6], seed)
    grid = chance.integers(0, 3, size=len(sampled))
    forced = chance.random(len(start)) < 0.5
    found = np.full(len(grid), -1, np.int32)

    loop("running_count")(grid, 1, found, start, last - start + 1, forced, closing)

    expected, count = np.zeros(len(grid), np.int32), int(closing)
    for begin, end, always in zip(start, last, forced, strict=True):
        for t in range(begin, end + 1):
            marked = grid[t] == 1 or (always and t == (end if closing else begin))
            expected[t] = count if closing else count + marked
            count += marked
    assert found.tolist() == expected.tolist()


def test_no_run_at_all_is_counted_as_nothing() -> None:
    none, found = np.zeros(0, np.int64), np.full(3, 7, np.int32)
    loop("running_count")(np.ones(3, np.int64), 1, found, none, none, np.zeros(0, bool), False)
    assert found.tolist() == [0, 0, 0]


def test_looked_up_takes_the_entry_of_every_number() -> None:
    found = np.zeros(4)
    loop("looked_up")(np.array([0.0, 1.5, -2.0]), np.array([2, 0, 1, 2], np.int32), found)
    assert found.tolist() == [-2.0, 0.0, 1.5, -2.0]
