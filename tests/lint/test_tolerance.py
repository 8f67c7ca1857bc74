"""What rounding is allowed: as much as the types that the numbers were stored in make, and no more."""

from __future__ import annotations

import pytest
import torch

from apportion.lint import tolerance
from apportion.lint.tolerance import FLOAT32

FLOAT64 = torch.finfo(torch.float64).eps


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(torch.tensor([0.1]), FLOAT32, id="float32"),
        pytest.param(torch.tensor([0.1], dtype=torch.float16), 2.0**-10, id="float16"),
        pytest.param(torch.tensor([0.1], dtype=torch.bfloat16), 2.0**-7, id="bfloat16"),
        pytest.param(torch.tensor([0.1], dtype=torch.float64), FLOAT64, id="float64"),
        pytest.param(torch.tensor([0.1]).double(), FLOAT32, id="float32-once"),
        pytest.param(torch.tensor([0.5, float("nan"), float("inf")]).double(), FLOAT32, id="garbage-has-no-say"),
        pytest.param(torch.tensor([0.5, 0.1], dtype=torch.float64), FLOAT64, id="one-that-was-never-float32"),
        pytest.param(torch.tensor([1, 0]), FLOAT32, id="integers"),
        pytest.param(torch.tensor([True]), FLOAT32, id="bool"),
    ],
)
def test_a_column_is_as_exact_as_the_type_that_it_was_stored_in(column, expected):
    assert tolerance.epsilon(column) == expected


def test_a_sum_is_allowed_what_storing_and_adding_round_off():
    assert tolerance.of_sum(2.0**-10, scale=8.0, terms=0) == 8 * 4 * 2.0**-10
    assert tolerance.of_sum(2.0**-30, scale=1.0, terms=4) == (4 + 32) * 2.0**-30
    # however coarsely a column was stored, sums are taken in float32
    assert tolerance.of_sum(0.25, scale=1.0, terms=4) == 1.0 + 32 * FLOAT32


def test_a_tolerance_grows_with_the_factor_and_with_what_comes_out():
    assert tolerance.of_mapped(0.5, factor=4.0, largest=0.0, stored=0.25) == 2.0
    assert tolerance.of_mapped(0.0, factor=4.0, largest=8.0, stored=2.0**-30) == 8 * 20 * 2.0**-30
