"""The door of settings."""

from __future__ import annotations

import pytest

from apportion.errors import InputError
from apportion.rewards.bounds import refuse_outside
from batches import INF, NAN


@pytest.mark.parametrize(
    ("came", "message"),
    [
        pytest.param(-0.25, "share must be a finite number from 0 to 1; -0.25 came", id="too low"),
        pytest.param(1.25, "share must be a finite number from 0 to 1; 1.25 came", id="too high"),
        pytest.param(NAN, "share must be a finite number from 0 to 1; nan came", id="no number"),
        pytest.param(INF, "share must be a finite number from 0 to 1; inf came", id="endless"),
    ],
)
def test_what_is_outside_is_refused_with_what_came(came: float, message: str) -> None:
    with pytest.raises(InputError) as refused:
        refuse_outside("share", came, 0.0, 1.0)
    assert str(refused.value) == message


@pytest.mark.parametrize("came", [pytest.param(x, id=str(x)) for x in (0.0, 0.5, 1.0)])
def test_what_is_inside_passes_both_ends_included(came: float) -> None:
    refuse_outside("share", came, 0.0, 1.0)


@pytest.mark.parametrize("came", [pytest.param(x, id=str(x)) for x in (INF, -INF, NAN)])
def test_without_bounds_any_finite_number_passes_and_no_other(came: float) -> None:
    refuse_outside("line", 1e300)
    refuse_outside("line", -1e300)
    with pytest.raises(InputError, match=r"line must be a finite number; "):
        refuse_outside("line", came)


def test_without_an_upper_bound_the_message_names_the_lower() -> None:
    refuse_outside("coef", 1e300, 0.0)
    with pytest.raises(InputError, match=r"coef must be a finite number of at least 0; -1 came"):
        refuse_outside("coef", -1, 0.0)
