"""Spreading from steps to tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters, spread
from apportion.steps.grid import StepMap, number_steps
from batches import FEWER, batch_of, random_rows

SPREADS = [
    pytest.param(spread.repeat, id="repeat"),
    pytest.param(spread.share, id="share"),
    pytest.param(spread.last_token, id="last token"),
]


def a_map() -> StepMap:
    return number_steps(batch_of("aataa", "p"), torch.tensor([[1, 0, 0, 0, 1], [0] * 5]).bool())


@pytest.mark.parametrize(
    ("spread_by", "expected"),
    [
        pytest.param(spread.repeat, [[3, 3, 0, 3, -2], [0] * 5], id="repeat"),
        pytest.param(spread.share, [[1, 1, 0, 1, -2], [0] * 5], id="share"),
        pytest.param(spread.last_token, [[0, 0, 0, 3, -2], [0] * 5], id="last token"),
    ],
)
def test_a_step_of_three_tokens_and_one_of_one(spread_by: spread.Spread, expected: list[list[float]]) -> None:
    assert spread_by(torch.tensor([[3.0, -2.0], [7.0, 7.0]]), a_map()).tolist() == expected


@pytest.mark.parametrize(
    ("spread_by", "times"),
    [
        pytest.param(spread.repeat, lambda steps: steps.lengths, id="repeat"),
        pytest.param(spread.share, lambda steps: steps.mask.float(), id="share"),
        pytest.param(spread.last_token, lambda steps: steps.mask.float(), id="last token"),
    ],
)
@FEWER
@given(rows=random_rows())
def test_the_tokens_of_a_step_sum_to_its_number_or_to_it_for_every_token(
    spread_by: spread.Spread, times: object, rows: list[Rollout]
) -> None:
    assert callable(times)
    steps = splitters.lines(collate(rows))
    grid = torch.arange(1.0, steps.mask.numel() + 1).view_as(steps.mask) * steps.mask

    torch.testing.assert_close(steps.sum(spread_by(grid, steps)), grid * times(steps))


@pytest.mark.parametrize("spread_by", SPREADS)
@FEWER
@given(rows=random_rows())
def test_all_spreads_are_the_same_where_every_token_is_a_step(spread_by: spread.Spread, rows: list[Rollout]) -> None:
    steps = splitters.every_token(collate(rows))
    grid = torch.arange(1.0, steps.mask.numel() + 1).view_as(steps.mask)

    assert torch.equal(spread_by(grid, steps), steps.to_tokens(grid))


@pytest.mark.parametrize("spread_by", SPREADS)
def test_one_number_for_a_rollout_cut_into_rows_follows_the_mask_of_each_row(spread_by: spread.Spread) -> None:
    whole = batch_of("ttaaaattta")
    two_rows = Rollouts(
        tokens=whole.tokens.view(2, 5),
        rollout_of=whole.rollout_of.view(2, 5),
        action_mask=torch.tensor([[0, 0, 1, 1, 1], [1, 0, 0, 0, 1]]).bool(),
        turns=whole.turns.view(2, 5),
        groups=whole.groups,
        outcome=whole.outcome,
        ended=whole.ended,
    )
    advantage = torch.tensor([[0.75]])

    spread_out = spread_by(advantage, splitters.whole(two_rows))

    assert torch.equal(spread_out, spread_by(advantage, splitters.whole(whole)).view(2, 5))
    if spread_by is spread.repeat:
        assert spread_out.tolist() == [[0, 0, 0.75, 0.75, 0.75], [0.75, 0, 0, 0, 0.75]]
