"""When and for whom steps are credited one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion.errors import InputError
from apportion.rewards import schedules
from batches import INF, NAN, SIXTEENTHS

EVERY = [
    pytest.param(schedules.constant(0.25), id="constant"),
    pytest.param(schedules.outcome_only_until(0.5), id="outcome only"),
    pytest.param(schedules.linear_ramp(0.25, 0.75), id="ramp"),
]


@pytest.mark.parametrize(
    ("schedule", "weights"),
    [
        pytest.param(schedules.constant(0.25), [0.25] * 5, id="constant"),
        pytest.param(schedules.outcome_only_until(0.5), [0, 0, 1, 1, 1], id="from half way on"),
        pytest.param(schedules.outcome_only_until(0.0), [1] * 5, id="from the start"),
        pytest.param(schedules.outcome_only_until(1.0), [0, 0, 0, 0, 1], id="to the end"),
        pytest.param(schedules.linear_ramp(0.25, 0.75), [0, 0, 0.5, 1, 1], id="ramp in the middle"),
        pytest.param(schedules.linear_ramp(0.0, 1.0), [0, 0.25, 0.5, 0.75, 1], id="ramp all through"),
    ],
)
def test_weights_at_the_quarters_of_training(schedule: schedules.Schedule, weights: list[float]) -> None:
    assert [schedule(quarter / 4) for quarter in range(5)] == weights


def test_outcome_alone_is_for_four_fifths_unless_told_otherwise() -> None:
    schedule = schedules.outcome_only_until()

    for total in (5, 30, 100, 1000):
        assert [step for step in range(total) if schedule(step / total)] == list(range(total * 4 // 5, total))


@pytest.mark.parametrize("schedule", EVERY)
@given(st.floats(0, 1), st.floats(0, 1))
def test_a_weight_is_a_share_and_never_falls(schedule: schedules.Schedule, one: float, other: float) -> None:
    early, late = schedule(min(one, other)), schedule(max(one, other))

    assert 0 <= early <= late <= 1


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("progress", [pytest.param(x, id=str(x)) for x in (-0.01, 1.01, NAN)])
def test_a_progress_that_is_no_share_is_refused(schedule: schedules.Schedule, progress: float) -> None:
    with pytest.raises(InputError, match=f"progress must be a finite number from 0 to 1; {progress} came"):
        schedule(progress)


@st.composite
def credits(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Totals of 1 to 4 rollouts, step credit [N, K] that adds up to them with garbage behind the mask, and the mask."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = torch.tensor(draw(st.lists(st.integers(0, columns), min_size=rows, max_size=rows)))
    numbers = draw(st.lists(SIXTEENTHS, min_size=rows * columns, max_size=rows * columns))
    mask = torch.arange(columns) < counts.unsqueeze(1)
    steps = torch.tensor(numbers, dtype=torch.float64).view(rows, columns)
    garbage = draw(st.sampled_from([NAN, INF, 1e9]))
    return torch.where(mask, steps, 0).sum(1), torch.where(mask, steps, garbage), mask


MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False], [True, True, False]])


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
def test_a_total_is_laid_evenly_over_the_steps_there_are(dtype: torch.dtype) -> None:
    found = schedules.evenly(torch.tensor([1.5, -2.0, 4.0, NAN], dtype=dtype), MASK)

    assert found.tolist() == [[0.5, 0.5, 0.5], [-2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert found.dtype == dtype


@given(credits(), st.floats(0, 1), st.data())
def test_a_blend_keeps_every_total_for_every_weight(
    batch: tuple[Tensor, Tensor, Tensor], weight: float, data: st.DataObject
) -> None:
    totals, steps, mask = batch
    even = schedules.evenly(totals, mask)
    found = schedules.blend(even, steps, mask, weight=weight)

    torch.testing.assert_close(even.sum(1), totals, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.sum(1), totals, rtol=0, atol=1e-12)
    assert found[~mask].eq(0).all()
    assert torch.equal(schedules.blend(torch.where(mask, even, NAN), steps, mask, weight=weight), found)
    turned = torch.tensor(data.draw(st.permutations(range(len(totals)))))
    assert torch.equal(schedules.blend(even[turned], steps[turned], mask[turned], weight=weight), found[turned])


@given(credits())
def test_the_ends_of_a_blend_are_what_was_blended(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    totals, steps, mask = batch
    even = schedules.evenly(totals, mask)

    assert torch.equal(schedules.blend(even, steps, mask, weight=0.0), even)
    assert torch.equal(schedules.blend(even, steps, mask, weight=1.0), torch.where(mask, steps, 0))


def test_a_blend_by_hand() -> None:
    outcome, steps = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, -3.0]])

    assert schedules.blend(outcome, steps, torch.ones(1, 2).bool(), weight=0.25).tolist() == [[0.625, -0.375]]


def best(outcome: list[float], groups: list[int], votes: list[int] | None = None, **share: float) -> list[int]:
    marks = torch.tensor(votes or [1] * len(outcome)).bool()
    found = schedules.best_of_group(torch.tensor(outcome).float(), torch.tensor(groups), marks, **share)
    marked: list[int] = found.int().tolist()
    return marked


@pytest.mark.parametrize(
    ("outcome", "share", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5], 0.2, [0, 0, 0, 0, 1], id="one of five"),
        pytest.param([1, 2, 3, 4], 0.2, [0, 0, 0, 1], id="never none"),
        pytest.param([1, 2, 3, 4, 5, 6, 7, 8, 9], 0.2, [0] * 8 + [1], id="not yet two of nine"),
        pytest.param([4, 3, 2, 1], 0.5, [1, 1, 0, 0], id="half"),
        pytest.param([4, 3, 2, 1], 0.74, [1, 1, 0, 0], id="not yet three"),
        pytest.param([4, 3, 2, 1], 1.0, [1, 1, 1, 1], id="all"),
        pytest.param([4, 3, 2, 1], 0.0, [0, 0, 0, 0], id="none"),
        pytest.param([2, 2, 1, 1], 0.25, [1, 1, 0, 0], id="equals are in together"),
        pytest.param([3, 2, 2, 1], 0.25, [1, 0, 0, 0], id="or out together"),
        pytest.param([3, 2, 2, 1], 0.5, [1, 1, 1, 0], id="in, where one of them is"),
        pytest.param([0, 0, 0, 0], 0.2, [1, 1, 1, 1], id="all equal"),
        pytest.param([-1, -3, -2], 0.4, [1, 0, 0], id="below 0"),
        pytest.param([1, NAN, 3, 2], 0.34, [0, 0, 1, 0], id="the unscored is not counted"),
        pytest.param([NAN, NAN], 1.0, [0, 0], id="nobody was scored"),
    ],
)
def test_the_best_of_one_group(outcome: list[float], share: float, expected: list[int]) -> None:
    assert best([float(x) for x in outcome], [0] * len(outcome), share=share) == expected


def test_a_share_that_rounding_puts_just_under_a_whole_number_is_that_number() -> None:
    assert 0.29 * 100 < 29
    assert sum(best([float(n) for n in range(100)], [0] * 100, share=0.29)) == 29


def test_each_group_has_its_own_best_a_fifth_unless_told_otherwise() -> None:
    outcome = [0.25, 5.0, 0.5, 7.0, 0.0, 6.0, 1.0, 9.0, 0.75, 8.0]
    groups = [3, 0, 3, 0, 3, 0, 3, 0, 3, 0]

    assert best(outcome, groups) == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert best([*range(15, 0, -1)], [2] * 15) == [1] * 3 + [0] * 12
    assert best(outcome, groups, votes=[1, 1, 1, 1, 1, 1, 0, 0, 1, 1]) == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    # equal outcomes of two groups that stand next to each other are not equals
    assert best([1.0, 2.0, 2.0, 3.0], [1, 1, 2, 2], share=0.5) == [0, 1, 0, 1]
    assert best([2.0, 1.0, 1.0, 0.0], [1, 1, 2, 2], share=0.5) == [1, 0, 1, 0]


@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 1.0, NAN]), st.sampled_from([0, 2, 3]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.75, 1.0]),
    st.data(),
)
def test_the_best_are_those_with_less_than_the_quota_before_them(
    rows: list[tuple[float, int, bool]], share: float, data: st.DataObject
) -> None:
    outcome, groups, votes = (torch.tensor(column) for column in zip(*rows, strict=True))
    found = schedules.best_of_group(outcome, groups, votes, share=share)

    voters = [(o, g) for o, g, v in rows if v and o == o]
    for (o, g, v), is_best in zip(rows, found.tolist(), strict=True):
        siblings = [other for other, group in voters if group == g]
        quota = max(int(share > 0), int(share * len(siblings)))
        assert is_best == (v and o == o and sum(other > o for other in siblings) < quota)
    turned = torch.tensor(data.draw(st.permutations(range(len(rows)))))
    assert torch.equal(
        schedules.best_of_group(outcome[turned], groups[turned], votes[turned], share=share), found[turned]
    )
    assert torch.equal(schedules.best_of_group(outcome, 7 - 2 * groups, votes, share=share), found)


@given(credits(), st.data())
def test_steps_for_the_best_and_the_outcome_for_the_rest_keep_every_total(
    batch: tuple[Tensor, Tensor, Tensor], data: st.DataObject
) -> None:
    totals, steps, mask = batch
    even = schedules.evenly(totals, mask)
    chosen = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(totals), max_size=len(totals))))
    found = schedules.steps_for_the_best(even, steps, chosen, mask)

    torch.testing.assert_close(found.sum(1), totals, rtol=0, atol=1e-12)
    assert found[~mask].eq(0).all()
    assert torch.equal(found[chosen], torch.where(mask, steps, 0)[chosen])
    assert torch.equal(found[~chosen], even[~chosen])
    for weight, everyone in ((1.0, torch.ones_like(chosen)), (0.0, torch.zeros_like(chosen))):
        blended = schedules.blend(even, steps, mask, weight=weight)
        assert torch.equal(schedules.steps_for_the_best(even, steps, everyone, mask), blended)


GRID, ON = torch.zeros(1, 1), torch.ones(1).bool()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: schedules.constant(1.5), "weight .* from 0 to 1; 1.5 came", id="weight"),
        pytest.param(lambda: schedules.constant(-0.5), "weight .* from 0 to 1; -0.5 came", id="weight under 0"),
        pytest.param(lambda: schedules.outcome_only_until(1.5), "share .* from 0 to 1; 1.5 came", id="share over 1"),
        pytest.param(lambda: schedules.outcome_only_until(-0.5), "share .* from 0 to 1; -0.5 came", id="share under 0"),
        pytest.param(lambda: schedules.linear_ramp(0.5, 0.5), "0.5 to 0.5 came", id="a jump"),
        pytest.param(lambda: schedules.linear_ramp(0.75, 0.5), "0.75 to 0.5 came", id="backwards"),
        pytest.param(lambda: schedules.linear_ramp(-0.5, 0.5), "-0.5 to 0.5 came", id="before the start"),
        pytest.param(lambda: schedules.linear_ramp(0.5, 1.5), "0.5 to 1.5 came", id="past the end"),
        pytest.param(lambda: schedules.linear_ramp(NAN, 0.5), "nan to 0.5 came", id="NaN"),
        pytest.param(lambda: schedules.blend(GRID, GRID, GRID.bool(), weight=1.5), "weight .* 1.5 came", id="blend"),
        pytest.param(lambda: schedules.blend(GRID, GRID, GRID.bool(), weight=-0.5), "weight .* -0.5", id="blend under"),
        pytest.param(lambda: best([1.0], [0], share=1.5), "share .* 1.5 came", id="best"),
        pytest.param(lambda: best([1.0], [0], share=-0.5), "share .* -0.5 came", id="best under"),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_what_came(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
