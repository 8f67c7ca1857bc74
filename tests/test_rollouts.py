"""Rollouts: what goes in comes out, however it is laid out, and what is wrong is refused at the door."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts, Scores, collate, pack
from batches import FEWER, INF, NAN, batch_of, random_rows, recut, row, types_unchecked


def same(a: Rollouts, b: Rollouts) -> None:
    """Fail where two batches differ in any field."""
    for name in (field.name for field in fields(a)):
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, Scores):
            assert left.rows() == right.rows(), name
        elif isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True, msg=name)
        else:
            assert left == right, name


def test_collate_pads_on_the_right() -> None:
    batch = collate([row("paa", outcome=1.0, logprobs=[NAN, -1.0, -2.0]), row("a", outcome=2.0, logprobs=[-3.0])])

    assert batch.tokens.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert batch.rollout_of.tolist() == [[0, 0, 0], [1, -1, -1]]
    assert batch.action_mask.tolist() == [[False, True, True], [True, False, False]]
    assert batch.valid_mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.turns.tolist() == [[0, 1, 1], [0, -1, -1]]
    assert batch.outcome.tolist() == [1.0, 2.0]
    assert batch.action_counts.tolist() == [2, 1]
    assert batch.ids == ("0", "1")
    assert batch.logprobs is not None
    assert batch.logprobs.nan_to_num(nan=9).tolist() == [[9, -1, -2], [-3, 9, 9]]
    assert len(batch) == 2


def test_log_probabilities_that_one_rollout_lacks_are_left_out() -> None:
    batch = collate([row("a", ["x"], logprobs=[-1.0]), row("a")])

    assert batch.logprobs is None


def test_a_rollout_without_text_takes_the_text_of_no_other_away() -> None:
    rows = [row("a", ["x"]), row("a")]
    batch = collate(rows)

    assert batch.texts == ("x", None)
    assert [back.offsets for back in batch.rows()] == [[(0, 1)], None]


def test_log_probabilities_are_kept_in_float32_whatever_the_outcome_is_in() -> None:
    batch = collate([row("a", outcome=0.1, logprobs=[-1.0])], dtype=torch.float64)

    assert batch.logprobs is not None
    assert batch.logprobs.dtype == torch.float32
    assert batch.outcome.tolist() == [0.1]


@pytest.mark.parametrize(
    ("picture", "turns"),
    [
        pytest.param("", [], id="no token"),
        pytest.param("aaa", [0, 0, 0], id="answer alone"),
        pytest.param("ppaata", [0, 0, 1, 1, 2, 3], id="tool between"),
    ],
)
def test_a_new_turn_begins_where_sampled_and_other_tokens_meet(picture: str, turns: list[int]) -> None:
    batch = collate([row(picture, outcome=0.0)])

    assert batch.turns[batch.valid_mask].tolist() == turns


def test_turns_that_came_with_the_rollout_are_kept() -> None:
    assert collate([row("aata", turns=[0, 1, -1, 2])]).turns.tolist() == [[0, 1, -1, 2]]


def test_groups_are_numbered_as_they_first_appear() -> None:
    batch = collate([row("a", group=name) for name in ("q2", "q1", "q2", "q3")])

    assert batch.groups.tolist() == [0, 1, 0, 2]
    assert batch.group_names == ("q2", "q1", "q3")


def test_a_batch_made_by_hand_gets_names() -> None:
    batch = batch_of("a", "a")
    plain = Rollouts(
        tokens=batch.tokens,
        rollout_of=batch.rollout_of,
        action_mask=batch.action_mask,
        turns=batch.turns,
        groups=torch.tensor([1, 0]),
        outcome=batch.outcome,
        ended=batch.ended,
    )

    assert (plain.ids, plain.group_names, plain.texts) == (("0", "1"), (0, 1), (None, None))
    assert (plain.step_rewards, plain.step_values, plain.end_values) == (None, None, None)


def test_only_rollouts_that_were_scored_and_sampled_something_vote() -> None:
    batch = collate([row("pa", outcome=0.0), row("pa"), row("p", outcome=1.0), row("", outcome=1.0)])

    assert batch.votes.tolist() == [True, False, False, False]
    assert batch.outcome.isnan().tolist() == [False, True, False, False]


def test_every_token_gets_the_entry_of_its_rollout() -> None:
    batch = pack(batch_of("pa", "a", "aa"), 3)

    assert batch.of_tokens(torch.tensor([5.0, 6.0, 7.0])).tolist() == [[5, 5, 6], [7, 7, 5]]


def test_packing_fills_rows_in_order() -> None:
    packed = pack(batch_of("aaa", "aa", "paaa", "a"), 5)

    assert packed.rollout_of.tolist() == [[0, 0, 0, 1, 1], [2, 2, 2, 2, 3]]
    assert packed.tokens.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]


def test_a_rollout_longer_than_a_packed_row_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"rollout long has 3 tokens, a packed row holds 2"):
        pack(collate([row("a"), row("aaa", id="long")]), 2)


@given(random_rows())
def test_rows_give_back_what_was_collated(rows: list[Rollout]) -> None:
    for came, back in zip(rows, collate(rows, dtype=torch.float64).rows(), strict=True):
        columns = "tokens action_mask group outcome ended text step_rewards step_values end_value"
        for name in columns.split():
            assert getattr(back, name) == getattr(came, name), name
        assert str(back.logprobs) == str(came.logprobs)
        assert back.offsets == came.offsets


@given(random_rows(), st.integers(1, 9))
def test_packing_and_cutting_rows_lose_nothing(rows: list[Rollout], width: int) -> None:
    batch = collate(rows)

    same(collate(pack(batch, max(9, *(len(r.tokens) for r in rows)) + width).rows()), batch)
    same(collate(recut(batch, width).rows()), batch)


def a_tree() -> list[Rollout]:
    """Two answers, and one that leaves the first after its prompt of one token and two of its own."""
    return [
        Rollout([9, 1, 2, 3], [False, True, True, True], "g", 1.0),
        Rollout([9, 4, 5], [False, True, True], "g", 0.0),
        Rollout([9, 1, 2, 6, 7], [False, True, True, True, True], "g", 0.0, branched_at=3),
    ]


@pytest.mark.parametrize("width", [5, 3, 20])
def test_what_a_branch_shares_counts_where_it_was_sampled_alone(width: int) -> None:
    batch = recut(collate(a_tree()), width)

    counted = batch.tokens[batch.counted_mask].tolist()

    assert counted == [1, 2, 3, 4, 5, 6, 7]
    assert batch.tokens[batch.action_mask].tolist() == [1, 2, 3, 4, 5, 1, 2, 6, 7]
    assert [row.branched_at for row in batch.rows()] == [0, 0, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"branched_at": 6}, "rollout 2: branched_at is 6; expected 0 to its 5 tokens", id="past its end"),
        pytest.param({"branched_at": -1}, "rollout 2: branched_at is -1", id="before its beginning"),
        pytest.param({"branched_at": 4}, "branched_at is 4, but no earlier one of its group", id="no trunk"),
        pytest.param({"group": "h"}, "no earlier one of its group", id="another group's trunk"),
    ],
)
def test_a_branch_without_its_trunk_is_refused(changes: dict[str, Any], message: str) -> None:
    *trunks, branch = a_tree()
    with pytest.raises(InputError, match=message):
        collate([*trunks, replace(branch, **changes)])


def test_a_new_outcome_leaves_the_old_batch_alone() -> None:
    batch = batch_of("a", "a")

    assert batch.with_outcome(torch.tensor([1.0, NAN])).votes.tolist() == [True, False]
    assert batch.outcome.tolist() == [0.0, 0.0]


@FEWER
@given(random_rows())
def test_moving_a_batch_to_where_it_is_changes_nothing(rows: list[Rollout]) -> None:
    batch = collate(rows)

    same(batch.to("cpu"), batch)


def test_moving_a_batch_moves_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = collate([row("a", ["x"], logprobs=[-1.0])])
    monkeypatch.setattr(Rollouts, "__post_init__", lambda self: None)  # the meta device holds no numbers to check

    moved = [entry.device.type for entry in vars(batch.to("meta")).values() if isinstance(entry, torch.Tensor)]

    assert moved == ["meta"] * 9  # four grids, three columns, log-probabilities, offsets


@pytest.mark.parametrize(
    ("picture", "response"),
    [
        pytest.param("pa", "world", id="after the prompt"),
        pytest.param("aa", "hello world", id="no prompt"),
        pytest.param("pp", "", id="nothing sampled"),
    ],
)
def test_the_response_starts_at_the_first_sampled_token(picture: str, response: str) -> None:
    batch = collate([row("aa", ["other", "text"]), row(picture, ["hello ", "world"])])

    assert batch.response(1) == response


def test_the_response_of_a_rollout_without_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"the text of rollout 1 \(nameless\)"):
        collate([row("a", ["x"]), row("a", id="nameless")]).response(1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        pytest.param({"turns": [0]}, "rollout 1: turns has 1 entries for 2 tokens", id="turns"),
        pytest.param({"logprobs": [-1.0] * 3}, "rollout 1: logprobs has 3 entries for 2 tokens", id="logprobs"),
        pytest.param({"offsets": []}, "rollout 1: offsets has 0 entries for 2 tokens", id="offsets"),
        pytest.param({"step_rewards": (0.0, NAN)}, r"rollout 1: step_rewards\[1\] is nan", id="NaN reward"),
        pytest.param({"step_rewards": (None,)}, r"rollout 1: step_rewards\[0\] is nan", id="no reward"),
        pytest.param({"step_values": (INF,)}, r"rollout 1: step_values\[0\] is inf", id="infinite value"),
        pytest.param({"step_values": (0.0, -INF)}, r"rollout 1: step_values\[1\] is -inf", id="minus infinite value"),
    ],
)
def test_a_broken_rollout_is_refused_naming_the_place(columns: dict[str, Any], message: str) -> None:
    with types_unchecked(), pytest.raises(InputError, match=message):
        collate([row("aa"), row("aa", **columns)])


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="rollout 0: action_mask has 1 entries for 2 tokens"):
        collate([Rollout(tokens=[1, 2], action_mask=[True], group=0)])


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InputError, match="at least one rollout"):
        collate([])


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        pytest.param(INF, "rollout second: outcome is infinite", id="plus"),
        pytest.param(-INF, "rollout second: outcome is infinite", id="minus"),
    ],
)
def test_an_infinite_outcome_is_refused(outcome: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        collate([row("a"), row("a", outcome=outcome, id="second")])


@pytest.mark.parametrize(
    "logprob",
    [pytest.param(NAN, id="nan"), pytest.param(0.5, id="above zero"), pytest.param(INF, id="infinite")],
)
def test_an_impossible_log_probability_is_refused_only_where_it_was_sampled(logprob: float) -> None:
    collate([row("a", logprobs=[0.0]), row("pa", logprobs=[logprob, -1.0])])

    with pytest.raises(InputError, match="row 1, position 1: log-probability"):
        collate([row("a", logprobs=[-1.0]), row("pa", logprobs=[-1.0, logprob])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"rollout_of": torch.tensor([[1, 1], [0, 0]])}, "reading order", id="rollouts swapped"),
        pytest.param({"rollout_of": torch.tensor([[0, 0], [2, 2]])}, "count 0 to 1", id="no such rollout"),
        pytest.param(
            {"rollout_of": torch.tensor([[0, 0], [1, -1]])}, "row 1, position 1: action_mask is True", id="in padding"
        ),
        pytest.param(
            {"turns": torch.zeros(1, 2, dtype=torch.int64)},
            r"turns has shape \(1, 2\), tokens have \(2, 2\)",
            id="grid",
        ),
        pytest.param({"ids": ("only",)}, "ids has 1 entries for 2 rollouts", id="ids"),
        pytest.param({"texts": ("",) * 3}, "texts has 3 entries for 2 rollouts", id="texts"),
        pytest.param(
            {"step_rewards": Scores.of([None])}, "step_rewards has 1 entries for 2 rollouts", id="step rewards"
        ),
        pytest.param({"step_values": Scores.of([None])}, "step_values has 1 entries for 2 rollouts", id="step values"),
        pytest.param(
            {"step_values": Scores(torch.zeros(3), torch.tensor([1, 1]))},
            "holds 3 scores, its counts",
            id="a score over",
        ),
        pytest.param({"end_values": torch.zeros(1)}, "end_values has 1 entries for 2 rollouts", id="end values"),
        pytest.param({"outcome": torch.zeros(3)}, "outcome has 3 entries for 2 rollouts", id="outcome"),
        pytest.param({"ended": torch.ones(1).bool()}, "ended has 1 entries for 2 rollouts", id="ended"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with types_unchecked(), pytest.raises(InputError, match=message):
        replace(batch_of("aa", "aa"), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"logprobs": torch.tensor([[NAN, -INF]])}, "position 1: log-probability", id="impossible token"),
        pytest.param({"logprobs": torch.tensor([[NAN, NAN]])}, "position 1: log-probability", id="unknown token"),
        pytest.param({"logprobs": torch.tensor([[NAN, 0.5]])}, "position 1: log-probability", id="above 1"),
        pytest.param({"offsets": torch.zeros(1, 2, 3, dtype=torch.int64)}, "offsets have shape", id="offsets"),
        pytest.param(
            {"step_rewards": Scores.of([(1.0, NAN)])}, r"step_rewards\[1\] is nan", id="reward that is no number"
        ),
        pytest.param({"step_values": Scores.of([(INF,)])}, r"step_values\[0\] is inf", id="value that is no number"),
        pytest.param({"end_values": torch.tensor([-INF])}, "its end value is infinite", id="end value without end"),
        pytest.param({"groups": torch.tensor([-1])}, "groups must count from 0", id="negative group"),
        pytest.param({"group_names": ("a",), "groups": torch.tensor([1])}, "each have a name", id="nameless group"),
    ],
)
def test_a_batch_made_by_hand_is_checked_at_the_same_door(change: dict[str, Any], message: str) -> None:
    batch = collate([row("pa", outcome=1.0)])

    with pytest.raises(InputError, match=message), types_unchecked():
        replace(batch, **change)
