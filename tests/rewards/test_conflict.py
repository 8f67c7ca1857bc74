"""High step scores in wrong answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion.errors import InputError
from apportion.rewards import conflict
from batches import INF, NAN, SIXTEENTHS

Judged = tuple[Tensor, Tensor, Tensor]


@st.composite
def judged(draw: st.DrawFn) -> Judged:
    """Step scores, some missing and garbage there; outcomes, some NaN; where a step was scored."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    size = rows * columns
    numbers = torch.tensor(draw(st.lists(SIXTEENTHS, min_size=size, max_size=size)), dtype=torch.float64) / 4
    marks = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).view(rows, columns)
    outcome = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, NAN]), min_size=rows, max_size=rows))
    garbage = draw(st.sampled_from([NAN, INF, 1e9]))
    scores = torch.where(marks, numbers.view(rows, columns), garbage)
    return scores, torch.tensor(outcome, dtype=torch.float64), marks


SCORES = torch.tensor([[0.5, 1.0], [0.5, 1.0], [1.0, NAN], [0.5, 0.75], [1.0, 1.0], [NAN, NAN], [0.75, 0.75]])
OUTCOME = torch.tensor([0.0, 1.0, -1.0, 0.0, NAN, 0.0, 0.25])
SCORED = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1], [1, 1], [0, 0], [1, 1]]).bool()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, [1, 0, 1, 0, 0, 0, 0], id="as it comes: 0.7 and 0"),
        pytest.param({"threshold": 0.75}, [1, 0, 1, 0, 0, 0, 0], id="at the threshold"),
        pytest.param({"threshold": 0.76}, [0, 0, 1, 0, 0, 0, 0], id="under the threshold"),
        pytest.param({"threshold": 0.625}, [1, 0, 1, 1, 0, 0, 0], id="a lower threshold"),
        pytest.param({"wrong_up_to": 0.25}, [1, 0, 1, 0, 0, 0, 1], id="at the line"),
        pytest.param({"wrong_up_to": -0.5}, [0, 0, 1, 0, 0, 0, 0], id="a lower line"),
        pytest.param({"threshold": -9.0}, [1, 0, 1, 1, 0, 0, 0], id="no score is no high score"),
    ],
)
def test_a_conflict_is_a_high_mean_score_with_a_wrong_outcome(settings: dict[str, float], expected: list[int]) -> None:
    assert conflict.conflicts(SCORES, OUTCOME, SCORED, **settings).int().tolist() == expected


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
@pytest.mark.parametrize("steps", [pytest.param(n, id=str(n)) for n in (1, 3, 7, 10)])
def test_scores_that_all_stand_at_the_threshold_reach_it_whatever_rounding_does(dtype: torch.dtype, steps: int) -> None:
    scores, on = torch.full((1, steps), 0.7, dtype=dtype), torch.ones(1, steps).bool()

    assert conflict.conflicts(scores, torch.zeros(1, dtype=dtype), on).tolist() == [True]
    assert conflict.conflicts(scores, torch.zeros(1, dtype=dtype), on, threshold=0.7001).tolist() == [False]


@given(judged(), st.data())
def test_conflicts_follow_their_rollouts_and_stricter_settings_find_no_others(
    batch: Judged, data: st.DataObject
) -> None:
    scores, outcome, mask = batch
    found = conflict.conflicts(scores, outcome, mask)
    turned = torch.tensor(data.draw(st.permutations(range(len(outcome)))))

    assert torch.equal(conflict.conflicts(scores[turned], outcome[turned], mask[turned]), found[turned])
    assert torch.equal(conflict.conflicts(torch.where(mask, scores, 5), outcome, mask), found)
    assert not (conflict.conflicts(scores, outcome, mask, threshold=0.9) & ~found).any()
    assert not (conflict.conflicts(scores, outcome, mask, wrong_up_to=-0.5) & ~found).any()
    assert not (found & outcome.isnan()).any()


PROCESS = torch.tensor([[0.5, 0.25, NAN], [0.5, 0.25, 1.0], [INF, NAN, NAN]])
STEPS = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]]).bool()


def test_a_conflict_halves_the_process_reward_and_costs_no_more_unless_told() -> None:
    found = conflict.pull_down(PROCESS, torch.tensor([True, False, True]), STEPS)

    assert found.process.tolist() == [[0.25, 0.125, 0], [0.5, 0.25, 1], [0, 0, 0]]
    assert found.dropped.tolist() == [[0.25, 0.125, 0], [0, 0, 0], [0, 0, 0]]
    assert found.conflict.tolist() == [[0, 0, 0]] * 3


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
def test_the_extra_penalty_is_a_part_of_its_own_at_the_last_step(dtype: torch.dtype) -> None:
    process = PROCESS.to(dtype)

    found = conflict.pull_down(process, torch.ones(3).bool(), STEPS, factor=0.25, penalty=2.0)

    assert found.process.tolist() == [[0.125, 0.0625, 0], [0.125, 0.0625, 0.25], [0, 0, 0]]
    assert found.conflict.tolist() == [[0, -2, 0], [0, 0, -2], [0, 0, 0]]
    assert {part.dtype for part in found} == {dtype}


@given(judged(), st.data(), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.5]))
def test_nothing_that_a_conflict_costs_is_hidden(
    batch: Judged, data: st.DataObject, factor: float, penalty: float
) -> None:
    process, _, marks = batch
    steps = marks.sort(1, descending=True).values
    process = torch.where(steps, process.nan_to_num(0, 0, 0), NAN)
    flags = data.draw(st.lists(st.booleans(), min_size=len(process), max_size=len(process)))
    in_conflict = torch.tensor(flags)
    found = conflict.pull_down(process, in_conflict, steps, factor=factor, penalty=penalty)
    before = torch.where(steps, process, 0)

    assert torch.equal(found.process + found.dropped, before)
    charged = penalty * (in_conflict & steps.any(1)).double()
    assert torch.equal(found.conflict.sum(1), -charged)
    assert torch.equal(found.process[~in_conflict], before[~in_conflict])
    assert torch.equal(found.process[in_conflict], factor * before[in_conflict])
    after = (found.process + found.conflict).sum(1)
    assert (after <= before.sum(1))[before.sum(1) >= 0].all()
    assert all(part[~steps].eq(0).all() for part in found)
    turned = torch.tensor(data.draw(st.permutations(range(len(process)))))
    again = conflict.pull_down(process[turned], in_conflict[turned], steps[turned], factor=factor, penalty=penalty)
    assert all(torch.equal(a, b[turned]) for a, b in zip(again, found, strict=True))


def test_with_factor_one_and_no_penalty_nothing_changes() -> None:
    found = conflict.pull_down(PROCESS, torch.ones(3).bool(), STEPS, factor=1.0)

    assert torch.equal(found.process, torch.where(STEPS, PROCESS, 0))
    assert found.conflict.eq(0).all()


def test_the_share_of_conflicts_is_among_rollouts_that_were_judged_both_ways() -> None:
    found = conflict.conflicts(SCORES, OUTCOME, SCORED)

    assert conflict.conflict_share(found, OUTCOME, SCORED) == 0.4  # of 0, 1, 2, 3 and 6
    assert conflict.conflict_share(found[4:6], OUTCOME[4:6], SCORED[4:6]) is None
    assert conflict.conflict_share(found[3:4], OUTCOME[3:4], SCORED[3:4]) == 0


@pytest.mark.parametrize(
    ("means", "outcome", "expected"),
    [
        pytest.param([0.0, 1.0, 0.5], [0.0, 1.0, 0.5], 1.0, id="together"),
        pytest.param([0.0, 1.0, 0.5], [1.0, 0.0, 0.5], -1.0, id="against each other"),
        pytest.param([0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], 0.0, id="apart"),
        pytest.param([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], 0.5, id="by hand: 1 / 2"),
        pytest.param([1.0, 2.0, 9.0, 3.0], [1.0, 3.0, NAN, 2.0], 0.5, id="the unscored is left out"),
        pytest.param([1.0, 2.0, NAN, 3.0], [1.0, 3.0, 5.0, 2.0], 0.5, id="so is one without step scores"),
        pytest.param([0.0, 1.0], [1.0, 1.0], None, id="all outcomes alike"),
        pytest.param([0.5, 0.5], [0.0, 1.0], None, id="all scores alike"),
        pytest.param([0.0, 0.0], [0.0, 1.0], None, id="all scores 0"),
        pytest.param([0.5], [1.0], None, id="one rollout"),
        pytest.param([0.5, 1.0], [NAN, NAN], None, id="none scored"),
        pytest.param([0.5, 0.5 + 1e-6], [0.0, 1.0], 1.0, id="a small spread is one"),
        pytest.param([2.0**-40, 2.0**-39], [0.0, 1.0], 1.0, id="so is that of small numbers"),
    ],
)
def test_scores_and_outcomes_are_correlated_where_that_means_something(
    means: list[float], outcome: list[float], expected: float | None
) -> None:
    scores = torch.tensor([[2 * x, 0] for x in means], dtype=torch.float64)  # the mean is the number
    mask = torch.tensor([[x == x] * 2 for x in means])

    found = conflict.correlation(scores, torch.tensor(outcome, dtype=torch.float64), mask)

    assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))


@pytest.mark.parametrize("size", [pytest.param(x, id=str(x)) for x in (0.1, -0.1, 0.1 * 2**24)])
def test_means_that_differ_by_rounding_alone_are_alike(size: float) -> None:
    scores = torch.full((4, 7), size, dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([[1], [3], [6], [7]])

    assert len((torch.where(mask, scores, 0).sum(1) / mask.sum(1)).unique()) > 1
    assert conflict.correlation(scores, torch.tensor([0.0, 1.0, 0.0, 1.0]).double(), mask) is None


@pytest.mark.parametrize("slope", [pytest.param(5.0, id="up"), pytest.param(-5.0, id="down")])
def test_a_straight_line_is_never_correlated_by_more_than_one(slope: float) -> None:
    on = torch.ones(3, 1).bool()
    for numbers in itertools.combinations_with_replacement(range(1, 8), 3):
        line = torch.tensor(numbers).double()
        found = conflict.correlation(line.unsqueeze(1) / 10, slope * line, on)
        if found is not None:
            assert abs(found) <= 1
            assert found == pytest.approx(slope / 5)


@given(judged(), st.data())
def test_the_correlation_is_that_of_torch_and_bears_shift_stretch_and_order(batch: Judged, data: st.DataObject) -> None:
    scores, outcome, mask = batch
    found = conflict.correlation(scores, outcome, mask)
    turned = torch.tensor(data.draw(st.permutations(range(len(outcome)))))

    again = conflict.correlation(scores[turned], outcome[turned], mask[turned])
    moved = conflict.correlation(2 * scores - 3, outcome, mask)
    if found is None:
        assert again is None
        assert moved is None
    else:
        pairs = [(float(s[m].mean()), float(o)) for s, o, m in zip(scores, outcome, mask, strict=True) if m.any()]
        both = torch.tensor([pair for pair in pairs if pair[1] == pair[1]], dtype=torch.float64)
        assert found == pytest.approx(float(torch.corrcoef(both.T)[0, 1]), abs=1e-9)
        assert again == pytest.approx(found, abs=1e-9)
        assert moved == pytest.approx(found, abs=1e-9)
        assert -1 <= found <= 1


ONE = torch.ones(1, 1)
ON = torch.ones(1).bool()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: conflict.conflicts(ONE, ONE[0], ONE.bool(), threshold=NAN), "threshold .* nan", id="bar"),
        pytest.param(lambda: conflict.conflicts(ONE, ONE[0], ONE.bool(), wrong_up_to=INF), "wrong_up_to", id="line"),
        pytest.param(lambda: conflict.pull_down(ONE, ON, ONE.bool(), factor=1.5), "factor .* 1.5 came", id="raised"),
        pytest.param(lambda: conflict.pull_down(ONE, ON, ONE.bool(), factor=-0.5), "factor .* -0.5", id="turned"),
        pytest.param(lambda: conflict.pull_down(ONE, ON, ONE.bool(), penalty=-0.5), "penalty .* -0.5", id="a gain"),
        pytest.param(lambda: conflict.pull_down(ONE, ON, ONE.bool(), penalty=NAN), "penalty .* nan", id="NaN"),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_what_came(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
