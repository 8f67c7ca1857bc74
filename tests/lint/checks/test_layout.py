"""What must hold before anything else can be looked at."""

from __future__ import annotations

import pytest

from apportion.lint import CHECKS, lint
from lint.findings import GAE, INF, NAN, findings, where


def test_there_is_one_finding_a_check_in_the_order_of_the_report():
    assert [found.code for found in lint(GAE)] == [check.code for check in CHECKS]


def test_a_sampled_token_in_padding_stops_all_other_checks():
    found = lint(GAE | {"action_mask": [[1, 0, 1], [1, 1, 1]]})
    assert where(found[0]) == (1, 2, 1.0, 0.0)
    assert {each.verdict for each in found[1:]} == {"not checkable"}
    assert found[5].said == "mend bad-layout first"
    assert [each.code for each in found] == [check.code for check in CHECKS]


def test_without_an_action_mask_nothing_is_checkable_and_it_says_so():
    found = lint({"advantages": [[0.5]]})
    assert {(each.verdict, each.missing) for each in found} == {("not checkable", ("action_mask",))}


@pytest.mark.parametrize(
    ("segments", "place"),
    [
        pytest.param([[0, 1, 0, 2]], "segment 0 comes back after another one: row 0, position 2", id="comes-back"),
        pytest.param(
            [[0, 0, 1, 1], [5, 5, 4, 5]], "segment 5 comes back after another one: row 1, position 3", id="later"
        ),
        pytest.param([[3, 1, -1, 3]], "row 0, position 3", id="after-padding"),
        pytest.param([[0, 0, 1, 1], [0, 0, 1, 1]], "", id="same-ids-in-two-rows"),
        pytest.param([[0, -1, 0, 1]], "", id="padding-within"),
    ],
)
def test_a_segment_id_may_not_come_back_in_its_row(segments, place):
    found = lint({"action_mask": [[0] * 4] * len(segments), "segments": segments})[0]
    assert (found.verdict == "broken") == bool(place)
    assert place in found.said


def test_the_layout_says_what_was_found():
    said = lint(GAE | {"rewards": [[0.0, 0.0, NAN], [0.0, 1.0, 0.0]]})[0].said
    assert said == "2 rollouts in 2 rows of 3; 4 sampled tokens of 5; 1 rollouts not scored (NaN)"
    assert lint(GAE)[0].said == "2 rollouts in 2 rows of 3; 4 sampled tokens of 5"


@pytest.mark.parametrize("number", [NAN, INF, -INF, 1e39, -1e39], ids=str)
@pytest.mark.parametrize("name", ["values", "advantages", "returns"])
def test_a_number_that_is_none_is_found_where_it_is_used_and_nowhere_else(name, number):
    columns = GAE | {"returns": [[0.75, 0, 1.0], [0.75, 1.0, 0]]}
    behind = columns | {name: [[columns[name][0][0], number, 0.5], columns[name][1]]}
    assert findings(behind)["not-finite"].verdict == "holds"
    used = columns | {name: [columns[name][0], [columns[name][1][0], number, 0.0]]}
    assert f"row 1, position 1: {name} is {number}" in findings(used)["not-finite"].said


def test_a_column_that_holds_no_numbers_is_not_used_and_not_called_missing_in_silence():
    found = findings(GAE | {"values": [[0.5, 0.0, NAN], [0.25, 0.5, 0.0]]})
    assert found["gap-leak"].said == "missing: values (came, but see not-finite)"
    assert found["environment-credit"].verdict == "holds"
    assert found["group-statistics"].said == "missing: groups, recipe"


def test_an_infinite_reward_is_no_score_and_nan_is_none():
    assert findings(GAE | {"rewards": [[0, 0, INF], [0, 1, 0]]})["not-finite"].verdict == "broken"
    assert findings(GAE | {"rewards": [[0, 0, -1e39], [0, 1, 0]]})["not-finite"].verdict == "broken"
    assert findings(GAE | {"rewards": [[0, INF, 1], [0, 1, 0]]})["not-finite"].verdict == "holds"
    assert findings(GAE | {"rewards": [[0, 0, NAN], [0, 1, 0]]})["not-finite"].verdict == "holds"
