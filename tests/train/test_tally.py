import pytest
import torch

from apportion.across import Across
from apportion.train.tally import Forward, Tally


def forward(logprobs, ref_logprobs, entropy=0.5, ref_entropy=1.0):
    grid = torch.tensor([logprobs])
    return Forward(
        grid,
        torch.full_like(grid, entropy),
        torch.tensor([True]),
        torch.tensor([ref_logprobs]),
        torch.full_like(grid, ref_entropy),
    )


def test_the_figures_of_two_micro_batches_are_those_worked_out_by_hand():
    tally = Tally(clip_low=0.2, clip_high=0.2)
    halves, doubles = -0.6931471805599453, 0.6931471805599453
    old = torch.tensor([[-1.0, -1.0, float("nan")]])
    mask = torch.tensor([[True, True, False]])
    # the first token got half as probable and was blamed, the second twice as probable and was credited: both clipped
    first = forward([-1 + halves, -1 + doubles, 9.0], [-1 + halves, -1 + doubles, float("nan")])
    tally.add(first, old, torch.tensor([[-1.0, 1.0, 5.0]]), mask)
    # the same moves with the other sign of advantage are not clipped
    tally.add(first, old, torch.tensor([[1.0, -1.0, 5.0]]), mask)
    tally.add_mismatch(first, old, mask)
    figures = tally.figures()
    assert figures["clip_fraction_low"] == figures["clip_fraction_high"] == 0.25
    assert figures["ratio_min"] == pytest.approx(0.5)
    assert figures["ratio_max"] == pytest.approx(2.0)
    assert figures["kl"] == 0
    assert figures["entropy"] == 0.5
    assert figures["entropy_share_of_reference"] == 0.5
    assert figures["mismatch_max"] == figures["mismatch_mean"] == pytest.approx(doubles)


def test_kl_is_that_to_the_reference_and_never_negative():
    tally = Tally(clip_low=0.2, clip_high=0.2)
    mask = torch.ones(1, 2, dtype=torch.bool)
    tally.add(forward([-1.0, -2.0], [-1.2, -1.5]), torch.zeros(1, 2), torch.ones(1, 2), mask)
    assert tally.figures()["kl"] == pytest.approx((0.018731 + 0.148721) / 2, abs=1e-6)


def test_a_step_in_which_no_token_took_part_has_undefined_figures():
    tally = Tally(clip_low=0.2, clip_high=0.2)
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    tally.add(forward([-1.0, -1.0], [-1.0, -1.0]), torch.zeros(1, 2), torch.zeros(1, 2), nothing)
    tally.add_mismatch(forward([-1.0, -1.0], [-1.0, -1.0]), torch.zeros(1, 2), nothing)
    figures = tally.figures()
    assert set(figures.values()) == {None}


def test_the_figures_of_the_reference_are_over_the_rows_that_it_was_asked_about():
    tally = Tally(clip_low=0.2, clip_high=0.2)
    one = forward([-1.0, -2.0], [-1.2, -1.5])
    entropy, asked = torch.tensor([[9.0, 9.0], [0.5, 0.5]]), torch.tensor([False, True])
    two = Forward(one.logprobs.repeat(2, 1), entropy, asked, one.ref_logprobs, one.ref_entropy)
    tally.add(two, torch.zeros(2, 2), torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool))
    figures = tally.figures()
    assert figures["kl"] == pytest.approx((0.018731 + 0.148721) / 2, abs=1e-6)
    assert figures["entropy_share_of_reference"] == 0.5
    assert figures["entropy"] == pytest.approx((0.5 + 9) / 2)


def test_the_figures_of_several_processes_are_those_of_all_their_tokens():
    def of_two(entries):
        return 2 * entries

    tally = Tally(0.2, 0.2, Across(sum=of_two, largest=lambda entries: entries + 1, size=2))
    mask = torch.ones(1, 2, dtype=torch.bool)
    tally.add(forward([-1.0, -2.0], [-1.2, -1.5]), torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2), mask)
    figures = tally.figures()
    assert figures["entropy"] == 0.5
    assert (figures["ratio_min"], figures["ratio_max"]) == (0, 2), "of the other process"


def test_what_was_sampled_surprises_by_its_entropy_where_the_ratio_is_1():
    tally = Tally(clip_low=0.2, clip_high=0.2)
    mask = torch.tensor([[True, True, False]])
    tally.add(forward([-1.0, -2.0, -9.0], [0.0] * 3), torch.zeros(1, 3), torch.ones(1, 3), mask)
    tally.add_mismatch(forward([-1.0, -2.0, -9.0], [0.0] * 3, entropy=0.5), torch.zeros(1, 3), mask)
    assert tally.figures()["surprise_over_entropy"] == pytest.approx((1.0 + 2.0) / (0.5 + 0.5))
