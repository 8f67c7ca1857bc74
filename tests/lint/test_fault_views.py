"""Every known fault has the numbers that it is known for, worked by hand, and is named for them and nothing else."""

from __future__ import annotations

import pytest

from apportion.lint import faults, lint
from apportion.lint.intake import batch_of
from apportion.lint.view import credit_of, right

NAN = float("nan")
# Two turns with a gap of two and a third token after it; gamma = 1/2 and lam = 1/2, so one step keeps a quarter.
GAP = {
    "action_mask": [[0, 1, 1, 0, 0, 1, 1]],
    "valid_mask": [[1, 1, 1, 1, 1, 1, 1]],
    "rewards": [[0, 2.0, 1.0, 0, 0, 0, 4.0]],
    "values": [[9.0, 1.0, 2.0, 6.0, 8.0, 4.0, 2.0]],
    "gamma": 0.5,
    "lam": 0.5,
}
# delta = 2 + 1 - 1, 1 + 2 - 2, 0 + 1 - 4, 4 - 2; credit runs back by a quarter.
RIGHT = [0, 2.0 + 0.25 * 0.375, 1.0 + 0.25 * -2.5, 0, 0, -3.0 + 0.25 * 2.0, 2.0]
PADDED = {
    "action_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
    "valid_mask": [[1, 1, 0, 0], [1, 1, 1, 1]],
    "rewards": [[0, 4.0, 0, 0], [0, 0, 2.0, 4.0]],
    "values": [[2.0, 4.0, 8.0, 2.0], [2.0, 2.0, 4.0, 2.0]],
    "gamma": 0.5,
    "lam": 0.5,
}
LONG = [-1.0 + 0.25 * -0.125, -0.125, -1.0 + 0.25 * 2.0, 2.0]  # the second row, which has no padding
PACKED = {
    "action_mask": [[1, 1, 1, 1]],
    "segments": [[0, 0, 1, 1]],
    "rewards": [[0, 4.0, 0, 2.0]],
    "values": [[2.0, 4.0, 8.0, 2.0]],
    "gamma": 0.5,
    "lam": 0.5,
}
# In each: what stands at the sampled tokens of the rows, by hand.
NUMBERS = [
    pytest.param(
        GAP,
        "gamma and lam decay at every token of a tool gap",
        # worth 1 and 2 in the gap, 0.5 before it: delta at its edge is 1 + 0.5 - 2
        [[0, 2.0 + 0.25 * -0.5390625, -0.5 + (0.25**3) * -2.5, 0, 0, -2.5, 2.0]],
        id="decay-through-gaps",
    ),
    pytest.param(
        GAP,
        "the value at tool tokens is read as 0, and gamma and lam decay through the gap",
        # delta: 2, -1, 0, 2
        [[0, 2.0 + 0.25 * (-1.0 + 0.0625 * 1.375), -1.0 + 0.0625 * 1.375, 0, 0, -2.5, 2.0]],
        id="gaps-worth-nothing",
    ),
    pytest.param(
        GAP,
        "tool tokens are steps",
        # delta: 2, 1 + 3 - 2, 4 - 6, 2 - 8
        [[0, 2.0 + 0.25 * 1.0859375, 2.0 - 0.25 * 3.65625, 0, 0, -2.5, 2.0]],
        id="every-token-of-rollouts",
    ),
    pytest.param(
        GAP,
        "the value at the first tool token is taken for that of the next turn",
        [[0, 2.0 + 0.25 * 1.375, 1.0 + 3.0 - 2.0 + 0.25 * -2.5, 0, 0, -2.5, 2.0]],
        id="first-gap-value",
    ),
    pytest.param(
        GAP,
        "the value after a turn is read as 0",
        [[0, 2.0 + 0.25 * -1.625, 1.0 - 2.0 + 0.25 * -2.5, 0, 0, -2.5, 2.0]],
        id="nothing-after-a-turn",
    ),
    pytest.param(
        GAP,
        "every turn is an episode of its own",
        [[0, 2.0 + 0.25 * -1.0, 1.0 - 2.0, 0, 0, -2.5, 2.0]],
        id="turns-alone",
    ),
    pytest.param(
        GAP,
        "credit stops at the gap",
        [[0, 2.0 + 0.25 * 1.0, 1.0 + 2.0 - 2.0, 0, 0, -2.5, 2.0]],
        id="turns-cut",
    ),
    pytest.param(
        PADDED,
        "padding is walked through",
        # delta: 0 + 2 - 2, 4 + 4 - 4, 1 - 8, -2
        [[0.25 * 2.125, 4.0 + 0.25 * -7.5, 0, 0], LONG],
        id="padding-walked",
    ),
    pytest.param(
        PADDED,
        "the value in the padding after the last token bootstraps",
        [[0.25 * 4.0, 4.0 + 4.0 - 4.0, 0, 0], LONG],
        id="first-padding-value",
    ),
    pytest.param(
        PACKED | {"action_mask": [[1, 0, 1, 0]], "segments": [[0, 0, 1, -1]]},
        "the value in the padding after the last token bootstraps",
        # 0.5 * 2 more at the third place, and nothing of the value 4 at the second
        [[-2.0, 0, 1.0 - 8.0, 0]],
        id="first-padding-value-of-a-packed-row",
    ),
    pytest.param(
        PACKED | {"segments": [[0, 0, 1, -1]], "action_mask": [[1, 1, 1, 0]]},
        "padding is walked through",
        # delta: 0, 4 - 4, 0 + 1 - 8, -2
        [[0.0, 0.0, -7.0 + 0.25 * -2.0, 0]],
        id="padding-walked-of-a-packed-row",
    ),
    pytest.param(
        PACKED,
        "packed rows are one rollout",
        # delta: 0, 4 + 4 - 4, 0 + 1 - 8, 2 - 2
        [[0.25 * 2.25, 4.0 - 0.25 * 7.0, -7.0, 0.0]],
        id="rows-as-one",
    ),
    pytest.param(
        PACKED, "the neighbour's first value bootstraps", [[0.25 * 4.0, 4.0, -7.0, 0.0]], id="neighbour-value"
    ),
    pytest.param(
        PACKED, "the neighbour's credit runs on", [[0.25 * -1.75, 0.25 * -7.0, -7.0, 0.0]], id="neighbour-credit"
    ),
    pytest.param(
        PADDED,
        "the longest row counts as cut off",
        # 0.5 * 2 more at the end of the second row
        [[0.0, 0, 0, 0], [-1.015625, -0.0625, -0.25, 3.0]],
        id="longest-row-cut-off",
    ),
    pytest.param(
        PADDED,
        "every rollout counts as cut off",
        [[0.25 * 2.0, 2.0, 0, 0], [-1.015625, -0.0625, -0.25, 3.0]],
        id="all-cut-off",
    ),
    pytest.param(
        GAP | {"action_mask": [[0, 1, 1, 0, 1, 1, 1]]},
        "only the reward at the last token of a turn counts",
        # delta: 0 + 1 - 1, 1 + 4 - 2, 0 + 2 - 8, 0 + 1 - 4, 4 - 2
        [[0, 0.25 * 1.34375, 3.0 + 0.25 * -6.625, 0, -6.0 + 0.25 * -2.5, -2.5, 2.0]],
        id="rewards-of-turn-ends",
    ),
    pytest.param(
        GAP,
        "only the reward at the last token of a rollout counts",
        # delta: 0 + 1 - 1, 0 + 2 - 2
        [[0, 0.25 * -0.625, 0.25 * -2.5, 0, 0, -2.5, 2.0]],
        id="rewards-of-last-tokens",
    ),
    pytest.param(
        GAP,
        "no reward counts at all",
        [[0, 0.25 * -0.875, 0.25 * -3.5, 0, 0, -3.0 + 0.25 * -2.0, -2.0]],
        id="no-rewards",
    ),
    pytest.param(
        GAP,
        "dense rewards were summed and stand on the last token",
        # 7 - 2 at the end
        [[0, 0.25 * -0.4375, 0.25 * -1.75, 0, 0, -3.0 + 0.25 * 5.0, 5.0]],
        id="rewards-summed-at-the-end",
    ),
    pytest.param(
        GAP | {"rewards": [[0, 2.0, 0, 1.0, 0, 0, 4.0]]},
        "rewards at tokens that were not sampled count at the sampled token before",
        [RIGHT],
        id="rewards-moved",
    ),
    pytest.param(
        GAP | {"rewards": [[2.0, 0, 1.0, 0, 0, 0, 4.0]]},
        "rewards at tokens that were not sampled count at the sampled token before",
        [RIGHT],
        id="rewards-moved-from-the-prompt",
    ),
    pytest.param(
        GAP,
        "values are read one token late",
        # values 2, 4, 2, 0; delta: 2 + 2 - 2, 1 + 1 - 4, 0 + 0 - 2, 4
        [[0, 2.0 + 0.25 * -2.25, -2.0 + 0.25 * -1.0, 0, 0, -2.0 + 0.25 * 4.0, 4.0]],
        id="values-one-late",
    ),
    pytest.param(
        GAP, "these are the numbers of gamma = 1 and lam = 1", [[0, 6.0, 3.0, 0, 0, 0.0, 2.0]], id="undiscounted"
    ),
    pytest.param(
        PACKED | {"action_mask": [[1, 1, 0, 1]], "segments": [[0, 0, 1, 1]]},
        "every place of the row is a step: values",
        [[0.25 * 2.25, 4.0 - 0.25 * 7.0, 0, 0.0]],
        id="every-place",
    ),
    pytest.param(
        PACKED | {"action_mask": [[1, 1, 0, 1]], "rewards": [[0, 4.0, 4.0, 2.0]]},
        "every place of the row is a step, its reward too",
        # delta of the third place: 4 + 1 - 8
        [[0.25 * 3.25, 4.0 - 0.25 * 3.0, 0, 0.0]],
        id="every-place-with-its-reward",
    ),
]


def raw(columns: dict, name: str) -> list[list[float]]:
    batch = batch_of(columns)
    fault = next(fault for fault in faults.FAULTS if fault.name.startswith(name))
    credit = credit_of(fault.view(batch))
    return [
        [float(x) if m else 0.0 for x, m in zip(*row, strict=True)] for row in zip(credit, batch.counted, strict=True)
    ]


def test_the_right_view_is_worked_out_by_hand():
    assert credit_of(right(batch_of(GAP))).tolist() == [RIGHT]


@pytest.mark.parametrize(("columns", "name", "numbers"), NUMBERS)
def test_a_fault_has_its_numbers(columns, name, numbers):
    assert raw(columns, name) == numbers


@pytest.mark.parametrize(("columns", "name", "numbers"), NUMBERS)
def test_a_fault_is_named_for_its_numbers_and_breaks_the_checks_that_it_says(columns, name, numbers):
    broken = [found for found in lint(columns | {"advantages": numbers}) if found.verdict == "broken"]
    named = [found for found in broken if found.pattern.startswith(name)]
    fault = next(fault for fault in faults.FAULTS if fault.name.startswith(name))
    if fault.codes == (faults.UNSAMPLED,):
        assert [found.code for found in broken] == ["reward-unsampled"]
        assert "the credit counts them" in broken[0].said
        return
    assert {found.code for found in named} == set(fault.breaks(batch_of(columns)))
    assert str(fault) == named[0].pattern


def test_every_fault_has_a_case():
    names = [numbers.values[1] for numbers in NUMBERS]
    assert [fault.name for fault in faults.FAULTS if not any(fault.name.startswith(name) for name in names)] == []


def test_a_fault_that_a_batch_has_nowhere_to_show_is_not_asked_for():
    plain = batch_of({"action_mask": [[1, 1]], "valid_mask": [[1, 1]]})
    assert plain.cannot_leak == {"gap", "padding", "segment"}
    assert not {"gap-leak", "padding-leak", "segment-leak"} & {
        code for f in faults.possible(plain) for code in f.codes[:1]
    }
    assert batch_of(PACKED).cannot_leak == {"gap", "padding"}
    assert batch_of(GAP).cannot_leak == {"padding", "segment"}
    assert batch_of(PADDED).cannot_leak == {"gap", "segment"}


def test_a_tool_token_after_the_last_action_is_a_gap_where_padding_is_known():
    columns = {"action_mask": [[1, 0, 0]], "valid_mask": [[1, 1, 0]]}
    assert batch_of(columns).cannot_leak == {"segment"}
    assert batch_of({"action_mask": [[1, 0, 0]]}).cannot_leak == {"gap", "segment"}


def test_gamma_and_lam_may_be_0():
    columns = {"action_mask": [[1, 1, 1]], "rewards": [[1.0, 2.0, 4.0]], "values": [[0.5, 0.25, 1.0]]}
    only_now = [[0.5, 1.75, 3.0]]
    one_step = [[1.0 + 0.125 - 0.5, 2.0 + 0.5 - 0.25, 3.0]]
    for gamma, lam, advantages in ((0.0, 0.5, only_now), (0.5, 0.0, one_step)):
        found = lint(columns | {"gamma": gamma, "lam": lam, "advantages": advantages})
        assert [each.code for each in found if each.verdict == "broken"] == []
        assert {each.code: each.verdict for each in found}["credit-differs"] == "holds"
