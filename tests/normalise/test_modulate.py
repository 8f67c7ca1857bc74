"""A sequence-level advantage that modulates step credit, as published and safe of sign."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import normalise
from batches import INF, NAN

# A good answer and a bad one, whole credits 2 and -2: weights +-1 / sqrt(2). Each has a good and a bad step.
CREDIT = torch.tensor([[3.0, -1.0, NAN], [1.0, -3.0, INF]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False]] * 2)
GROUPS = torch.tensor([0, 0])
ROOT = 0.5**0.5


@st.composite
def grids(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Credit with exact sums, a mask, and groups."""
    rows, steps = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    numbers = draw(st.lists(st.integers(-64, 64), min_size=rows * steps, max_size=rows * steps))
    marks = draw(st.lists(st.sampled_from([True, True, False]), min_size=rows * steps, max_size=rows * steps))
    groups = draw(st.lists(st.sampled_from([0, 1, 2]), min_size=rows, max_size=rows))
    credit = torch.tensor(numbers, dtype=torch.float64).view(rows, steps) / 16
    return credit, torch.tensor(marks).view(rows, steps), torch.tensor(groups)


def test_the_published_product_rewards_the_bad_step_of_a_bad_answer_and_punishes_its_good_one() -> None:
    found = normalise.group_times_step_published(CREDIT, MASK, GROUPS)

    expected = torch.tensor([[3 * ROOT, -ROOT, 0], [-ROOT, 3 * ROOT, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    assert float(CREDIT[1, 1]) < 0 < float(found[1, 1])


def test_the_sign_safe_form_lets_every_step_keep_its_sign() -> None:
    found = normalise.group_times_step(CREDIT, MASK, GROUPS)

    expected = torch.tensor([[3 * ROOT, -ROOT, 0], [ROOT, -3 * ROOT, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_an_answer_like_all_others_of_its_group_says_nothing() -> None:
    credit, groups = torch.tensor([[2.0, -1.0], [0.5, 0.5], [9.0, 9.0]]), torch.tensor([0, 0, 1])

    for function in (normalise.group_times_step, normalise.group_times_step_published):
        assert function(credit, torch.ones(3, 2).bool(), groups).eq(0).all()
        assert function(credit, torch.tensor([[1, 1], [0, 0], [1, 1]]).bool(), groups).eq(0).all()


def test_totals_that_spread_by_at_most_the_least_are_alike() -> None:
    # whole credits 1, 2, 3: deviation 1
    grids = torch.tensor([[1.0], [2.0], [3.0]]), torch.ones(3, 1).bool(), torch.tensor([0, 0, 0])

    for function in (normalise.group_times_step, normalise.group_times_step_published):
        assert function(*grids, min_std=1.0).eq(0).all()
        assert function(*grids, min_std=0.99).tolist()[2] == [3]


@given(grids())
def test_signs_stay_and_for_better_answers_both_forms_agree(grid: tuple[Tensor, Tensor, Tensor]) -> None:
    credit, mask, groups = grid
    safe, published = (
        function(credit, mask, groups)
        for function in (normalise.group_times_step, normalise.group_times_step_published)
    )
    used = torch.where(mask, credit, 0)
    totals = used.sum(1)

    assert (safe * used >= 0).all()
    assert torch.equal(safe.abs(), published.abs())
    for n, group in enumerate(groups.tolist()):
        members = totals[(groups == group) & mask.any(1)]
        if len(members) and float(totals[n]) > float(members.mean()):
            assert torch.equal(safe[n], published[n])
