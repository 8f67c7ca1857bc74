"""Columns as people have them: any tensor, array or list of any type, and one clear line for what does not fit."""

from __future__ import annotations

import numpy
import pytest
import torch

from apportion.errors import InputError
from apportion.lint import lint
from apportion.lint.intake import batch_of

NAN = float("nan")
MASK = [[1, 0, 1], [1, 1, 0]]
ADVANTAGES = [[0.5, 0.0, -0.5], [1.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(torch.tensor(MASK).bool(), id="bool"),
        pytest.param(torch.tensor(MASK), id="int64"),
        pytest.param(torch.tensor(MASK).to(torch.uint8), id="uint8"),
        pytest.param(torch.tensor(MASK).float(), id="float32"),
        pytest.param(torch.tensor(MASK).to(torch.bfloat16), id="bfloat16"),
        pytest.param(numpy.array(MASK, dtype=bool), id="numpy-bool"),
        pytest.param(numpy.array(MASK, dtype=">f4"), id="other-byte-order"),
        pytest.param(numpy.asfortranarray(MASK), id="column-order"),
        pytest.param(torch.tensor(MASK).to_sparse(), id="sparse"),
        pytest.param(torch.tensor(MASK, dtype=torch.float32, requires_grad=True), id="with-gradient"),
        pytest.param(MASK, id="lists"),
        pytest.param([[True, False, True], [True, True, False]], id="lists-of-bool"),
        pytest.param(tuple(map(tuple, MASK)), id="tuples"),
    ],
)
def test_a_mask_of_any_type_is_the_same_mask(mask):
    assert batch_of({"action_mask": mask}).action_mask.tolist() == torch.tensor(MASK).bool().tolist()


def test_one_row_may_come_without_its_axis():
    batch = batch_of({"action_mask": [1, 0, 1], "advantages": torch.tensor([0.5, 0.0, 0.5]), "groups": [3]})
    assert batch.action_mask.tolist() == [[True, False, True]]
    assert batch.grids["advantages"].tolist() == [[0.5, 0.0, 0.5]]
    assert batch.notes == ("[T] was taken for one row",)


def test_one_row_with_its_axis_takes_columns_without():
    batch = batch_of({"action_mask": [[1, 0, 1]], "advantages": torch.tensor([0.5, 0.0, 0.5]), "groups": [0, 0, 0]})
    assert batch.grids["advantages"].tolist() == [[0.5, 0.0, 0.5]]


@pytest.mark.parametrize("shape", [(2,), (2, 1)], ids=["B", "B-1"])
def test_one_advantage_a_row_is_put_on_every_sampled_token(shape):
    batch = batch_of({"action_mask": MASK, "advantages": torch.tensor([0.5, -1.0]).view(shape)})
    assert batch.grids["advantages"].tolist() == [[0.5, 0.0, 0.5], [-1.0, -1.0, 0.0]]
    assert "every sampled token" in batch.notes[0]


def test_one_advantage_a_row_in_lists_stands_beside_rows_of_mixed_length():
    batch = batch_of({"action_mask": [[1, 0, 1], [1]], "advantages": [[0.5], [-1.0]]})
    assert batch.grids["advantages"].tolist() == [[0.5, 0.0, 0.5], [-1.0, 0.0, 0.0]]


def test_one_reward_a_row_is_put_on_its_last_sampled_token():
    masks = [[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    valid = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]
    batch = batch_of({"action_mask": masks, "valid_mask": valid, "rewards": [1.0, 2.0, 3.0]})
    assert batch.grids["rewards"].tolist() == [[0, 0, 1.0, 0], [0, 2.0, 0, 0], [0, 0, 3.0, 0]]
    assert "last sampled token" in batch.notes[0]


def test_one_reward_a_row_is_refused_where_a_row_holds_several_rollouts():
    with pytest.raises(InputError, match="row 1 holds several rollouts"):
        batch_of({"action_mask": MASK, "segments": [[0, 0, 0], [1, 1, 2]], "rewards": [1.0, 2.0]})


def test_rows_of_mixed_length_are_padded_and_the_padding_is_known():
    batch = batch_of({"action_mask": [[1, 0, 1], [1]], "rewards": [[0, 0, 1.0], [None]]})
    assert batch.valid.tolist() == [[True, True, True], [True, False, False]]
    assert batch.rollout_of.tolist() == [[0, 0, 0], [1, -1, -1]]
    assert batch.knows_padding
    assert batch.scored.tolist() == [True, False]
    assert batch.notes == ("rows of mixed length were padded to 3",)


def test_without_anything_that_says_so_nothing_is_known_to_be_padding():
    batch = batch_of({"action_mask": MASK})
    assert not batch.knows_padding
    assert bool(batch.valid.all())
    assert batch_of({"action_mask": MASK, "valid_mask": [[1, 1, 1], [1, 1, 0]]}).knows_padding
    assert batch_of({"action_mask": MASK, "segments": [[0, 0, 0], [0, 0, -1]]}).knows_padding


def test_a_segment_is_a_rollout_of_its_row():
    segments = [[5, 5, 9, -1], [9, 9, 2, 2]]
    batch = batch_of({"action_mask": [[1] * 4] * 2, "segments": torch.tensor(segments).to(torch.int32)})
    assert batch.rollout_of.tolist() == [[0, 0, 1, -1], [2, 2, 3, 3]]
    assert len(batch) == 4


def test_segments_and_a_valid_mask_are_padding_where_either_says_so():
    batch = batch_of({"segments": [[0, 0, -1]], "valid_mask": [[0, 1, 1]]})
    assert batch.valid.tolist() == [[False, True, False]]


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([7, 3], id="ids-of-rows"),
        pytest.param(["p", "a"], id="text"),
        pytest.param(numpy.array(["p", "a"]), id="numpy-text"),
        pytest.param([[7, 7, 7], [3, 3, 8]], id="ids-of-tokens"),
        pytest.param(torch.tensor([[7], [3]]), id="column"),
    ],
)
def test_groups_are_counted_from_0_by_row_or_by_token(groups):
    found = batch_of({"action_mask": MASK, "groups": groups}).groups
    assert len(found) == 2
    assert sorted(found.tolist()) == [0, 1]


def test_groups_of_packed_rollouts_are_those_of_their_first_tokens():
    batch = batch_of({"segments": [[0, 0, 1], [0, 1, 1]], "groups": [[4, 9, 6], [4, 6, 9]]})
    assert batch.groups.tolist() == [0, 1, 0, 1]


def test_what_is_still_expected_at_the_end_may_come_by_row_or_by_token():
    by_row = batch_of({"action_mask": MASK, "end_values": [0.5, None]}).end_values
    by_token = batch_of({"segments": [[0, 0, 1], [0, 0, 0]], "end_values": [[0.5, 0, 2.0], [1.0, 0, 0]]}).end_values
    assert by_row[0] == 0.5
    assert by_row.isnan().tolist() == [False, True]
    assert by_token.tolist() == [0.5, 2.0, 1.0]


@pytest.mark.parametrize(
    "gamma",
    [0.5, torch.tensor(0.5), numpy.float32(0.5), numpy.array(0.5), [0.5, 0.5], "0.5", torch.tensor([[0.5], [0.5]])],
    ids=["float", "tensor", "numpy", "array", "repeated", "text", "column"],
)
def test_a_setting_is_one_number_however_it_came(gamma):
    assert batch_of({"action_mask": MASK, "gamma": gamma}).settings.gamma == 0.5


@pytest.mark.parametrize(
    ("recipe", "called"),
    [("ppo", "gae"), ("reinforce_plus_plus", "to_go"), (["grpo", "grpo"], "grpo"), (numpy.array("rloo"), "rloo")],
    ids=["ppo", "reinforce-plus-plus", "repeated", "array"],
)
def test_a_recipe_has_one_name(recipe, called):
    assert batch_of({"action_mask": MASK, "recipe": recipe}).settings.recipe == called


def test_settings_may_lie_at_the_edge_of_their_range():
    settings = batch_of({"action_mask": MASK, "gamma": 0, "lam": 1, "divisor": 0.5, "tolerance": 0}).settings
    assert (settings.gamma, settings.lam, settings.divisor, settings.tolerance) == (0.0, 1.0, 0.5, 0.0)


def test_the_largest_exact_number_is_an_id():
    batch = batch_of({"segments": torch.tensor([[2**53, 2**53 - 1]])})
    assert batch.rollout_of.tolist() == [[0, 1]]


def test_what_came_as_none_did_not_come():
    assert "values" not in batch_of({"action_mask": MASK, "values": None, "gamma": None}).came


def test_unknown_columns_are_said_not_to_be_looked_at_with_the_nearest_name():
    said = lint({"action_mask": MASK, "reward": [1.0, 2.0], "uid": ["a", "b"]})[0].said
    assert "not looked at: reward; did you mean 'rewards'?, uid" in said


BAD = [
    pytest.param({}, "no column of tokens came; known are action_mask", id="nothing"),
    pytest.param({"rewardz": [[1.0]]}, "not looked at: rewardz; did you mean 'rewards'", id="only-unknown"),
    pytest.param({"action_mask": []}, r"action_mask must be \[B, T\].*shape \(0,\)", id="empty"),
    pytest.param({"action_mask": torch.ones(2, 3, 4)}, r"action_mask must be.*\(2, 3, 4\)", id="three-axes"),
    pytest.param({"action_mask": torch.ones(2, 0)}, r"shape \(2, 0\)", id="no-tokens"),
    pytest.param({"action_mask": torch.tensor(1)}, r"shape \(\)", id="no-axis"),
    pytest.param(
        {"action_mask": MASK, "values": torch.zeros(2, 4)},
        r"values has shape \(2, 4\), action_mask has \(2, 3\); expected the same$",
        id="other-width",
    ),
    pytest.param(
        {"action_mask": MASK, "advantages": torch.zeros(3)},
        r"advantages has shape \(3,\), action_mask has \(2, 3\); expected the same or one number a row",
        id="neither-rows-nor-tokens",
    ),
    pytest.param({"action_mask": MASK, "values": torch.zeros(2)}, "values has shape", id="values-by-row"),
    pytest.param({"action_mask": [[1, 2]]}, "action_mask, row 0, position 1: expected 0 or 1, got 2", id="mask-of-2"),
    pytest.param({"action_mask": [[1, None]]}, "expected 0 or 1, got nan", id="mask-with-null"),
    pytest.param({"action_mask": torch.tensor([[1.0, NAN]])}, "position 1: expected 0 or 1, got nan", id="mask-nan"),
    pytest.param({"action_mask": [[1, "x"]]}, "row 0, position 1: expected a number, got 'x'", id="text-in-row"),
    pytest.param({"action_mask": ["x", 1]}, "entry 0: expected a number, got 'x'", id="text-in-list"),
    pytest.param({"action_mask": [[1], 1]}, "row 1: expected a list as in the other rows, got 1", id="mixed-depth"),
    pytest.param({"action_mask": "0101"}, "action_mask must hold numbers, got '0101'", id="text"),
    pytest.param({"action_mask": [[1]], "values": [[10**400]]}, "the number is too large", id="huge-number"),
    pytest.param({"action_mask": numpy.array([[object()]])}, "action_mask must hold numbers", id="objects"),
    pytest.param({"action_mask": numpy.array([["a"]])}, "action_mask must hold numbers", id="text-array"),
    pytest.param(
        {"action_mask": [[1]], "values": torch.ones(1, 1, dtype=torch.complex64)}, "got complex", id="complex"
    ),
    pytest.param(
        {"action_mask": [[1, 1], [1]], "values": [[0.0, 0.0], [0.0, 0.0]]},
        "row 1: values has 2 entries, action_mask has 1",
        id="rows-that-disagree",
    ),
    pytest.param(
        {"action_mask": [[1, 1], [1, 1]], "values": [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]},
        r"values has shape \(3, 2\), action_mask has \(2, 2\)",
        id="more-rows",
    ),
    pytest.param(
        {"values": [[0.0, 0.0], [0.0]], "advantages": [[1.0], [1.0]], "returns": [[0.0], [0.0]]},
        "row 0: returns has 1 entries, values has 2",
        id="returns-by-row",
    ),
    pytest.param({"segments": [[0.5]]}, "segments must be whole numbers, got 0.5", id="half-segments"),
    pytest.param({"segments": torch.tensor([[NAN]])}, "segments must be whole numbers, got nan", id="nan-segments"),
    pytest.param({"segments": torch.tensor([[2**53 + 2]])}, "segments must be whole", id="past-exact-numbers"),
    pytest.param({"segments": torch.tensor([[1e300]])}, "segments must be whole numbers", id="huge-segments"),
    pytest.param({"segments": [[-1, -1]]}, "every token is padding", id="all-padding"),
    pytest.param(
        {"action_mask": MASK, "groups": [1]}, r"groups has shape \(1,\), expected \(2,\) or \(2, 3\)", id="one-group"
    ),
    pytest.param(
        {"action_mask": MASK, "groups": ["a", None]}, "groups, row 1: expected an id, got null", id="null-group"
    ),
    pytest.param({"action_mask": MASK, "groups": [1, None]}, "groups must be whole numbers, got nan", id="nan-group"),
    pytest.param(
        {"action_mask": MASK, "end_values": [0.5, float("-inf")]}, "end_values must be numbers.*got -inf", id="no-end"
    ),
    pytest.param({"action_mask": MASK, "end_values": [1e39, 0.5]}, "end_values.*got 1e\\+39", id="huge-end"),
    pytest.param({"action_mask": MASK, "tolerance": float("inf")}, "tolerance must lie", id="no-tolerance-at-all"),
    pytest.param({"action_mask": MASK, "micro_batch": [0]}, "micro_batch has 1 entries for 2 rows", id="micro-batch"),
    pytest.param({"action_mask": MASK, "gamma": 1.5}, "gamma must lie between 0 and 1, got 1.5", id="gamma-over-1"),
    pytest.param({"action_mask": MASK, "lam": -0.5}, "lam must lie between 0 and 1, got -0.5", id="negative-lam"),
    pytest.param({"action_mask": MASK, "gamma": NAN}, "gamma must lie between 0 and 1, got nan", id="nan-gamma"),
    pytest.param({"action_mask": MASK, "gamma": [0.5, 0.25]}, "gamma must be one value", id="gamma-that-varies"),
    pytest.param({"action_mask": MASK, "gamma": []}, "gamma must be one value", id="no-gamma"),
    pytest.param({"action_mask": MASK, "gamma": "high"}, "gamma must be a number, got 'high'", id="gamma-in-words"),
    pytest.param({"action_mask": MASK, "gamma": {"a": 1}}, "gamma.*expected a number", id="gamma-as-object"),
    pytest.param({"action_mask": MASK, "divisor": 0}, "divisor must be more than 0, got 0", id="divisor-0"),
    pytest.param({"action_mask": MASK, "tolerance": -1}, "tolerance must lie between 0 and 3.4", id="tolerance"),
    pytest.param({"action_mask": MASK, "recipe": "gpro"}, "no recipe 'gpro'; did you mean 'grpo'", id="recipe"),
    pytest.param(
        {"action_mask": MASK, "reduction": "token mean"}, "no reduction 'token mean'; did you mean", id="reduction"
    ),
]


@pytest.mark.parametrize(("columns", "words"), BAD)
def test_what_does_not_fit_is_refused_in_one_line(columns, words):
    with pytest.raises(InputError, match=words) as refused:
        lint(columns)
    assert "\n" not in str(refused.value)


def test_the_default_device_of_the_caller_has_no_say():
    columns = {"action_mask": torch.tensor(MASK), "advantages": torch.tensor(ADVANTAGES), "recipe": "grpo"}
    columns |= {"rewards": [1.0, 2.0], "groups": [0, 0]}
    expected = lint(columns)
    with torch.device("meta"):
        assert lint(columns) == expected


def test_the_arguments_are_left_as_they_were():
    columns = {"action_mask": torch.tensor(MASK), "advantages": torch.tensor(ADVANTAGES), "gamma": 1.0}
    before = {name: torch.as_tensor(column).clone() for name, column in columns.items()}
    lint(columns)
    assert all(torch.equal(torch.as_tensor(columns[name]), before[name]) for name in before)
