"""When the compiled loops may run. What they compute is held against plain torch where they are used."""

from __future__ import annotations

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
