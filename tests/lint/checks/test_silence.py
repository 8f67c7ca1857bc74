"""What was not sampled has advantage 0."""

from __future__ import annotations

import pytest

from lint.findings import GAE, INF, NAN, broken, findings


@pytest.mark.parametrize("number", [1e-30, -1.0, NAN, INF], ids=str)
def test_an_advantage_that_is_not_exactly_0_breaks_the_silence(number):
    tool = GAE | {"advantages": [[0.25, number, 0.5], [0.5, 0.5, 0.0]]}
    assert broken(tool) == ["environment-credit"]
    assert findings(tool)["environment-credit"].said.startswith(
        "1 of 1 tokens that were not sampled; row 0, position 1"
    )
    padding = GAE | {"advantages": [[0.25, 0.0, 0.5], [0.5, 0.5, number]]}
    assert broken(padding) == ["padding-credit"]
    assert findings(padding)["padding-credit"].said.startswith("1 of 1 places of padding; row 1, position 2")


def test_without_padding_being_known_it_is_environment():
    columns = {"action_mask": [[1, 0]], "advantages": [[0.5, 0.5]]}
    assert broken(columns) == ["environment-credit"]
    assert findings(columns)["padding-credit"].missing == ("segments or valid_mask",)
