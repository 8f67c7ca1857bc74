"""Values from how likely the reference answer is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters
from apportion.values.likelihood import Asked, likelihood


def answer(*tokens: int, group: str = "g", outcome: float | None = 1.0) -> Rollout:
    return Rollout([9, *tokens], [False] + [True] * len(tokens), group, outcome)


def test_a_value_is_the_mean_log_probability_of_a_reference_token_made_a_probability() -> None:
    asked: list[Asked] = []

    def log_likelihood(wanted: Sequence[Asked]) -> list[float]:
        asked.extend(wanted)
        return [-float(len(one.prefix.tokens) * len(one.reference)) for one in wanted]

    batch = collate([answer(1, 2), answer(1, 3), answer(4, group="h"), answer(5, outcome=None)])
    steps = splitters.every_token(batch)
    value = likelihood(log_likelihood, {"g": [7, 8], "h": [7]}.__getitem__)

    found = value(batch, steps, torch.zeros(steps.mask.shape, dtype=torch.float64))

    # one token of text: exp(-1), two: exp(-2); the answer that was not scored is not asked about
    one, two = math.exp(-1), math.exp(-2)
    torch.testing.assert_close(found, torch.tensor([[one, two], [one, two], [one, 0], [0, 0]]).double())
    assert [(one.prefix.group, one.prefix.tokens, one.reference) for one in asked] == [
        ("g", (9,), (7, 8)),
        ("g", (9, 1), (7, 8)),
        ("h", (9,), (7,)),
    ]


@pytest.mark.parametrize("numbers", [[], [-1.0, -1.0]])
def test_a_number_too_few_or_too_many_is_refused(numbers: list[float]) -> None:
    batch = collate([answer(1)])
    steps = splitters.whole(batch)
    with pytest.raises(ValueError, match="argument 2 is"):
        likelihood(lambda asked: numbers, lambda group: [7])(batch, steps, torch.zeros(1, 1))


def test_an_empty_reference_is_refused_by_group() -> None:
    batch = collate([answer(1)])
    steps = splitters.whole(batch)
    with pytest.raises(InputError, match="group 'g': the reference answer has no tokens"):
        likelihood(lambda asked: [0.0] * len(asked), lambda group: [])(batch, steps, torch.zeros(1, 1))
