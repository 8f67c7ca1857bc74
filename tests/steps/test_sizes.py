"""Long steps cut in pieces, and the report on how long steps are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate, pack
from apportion.steps import splitters
from apportion.steps.grid import StepMap, number_steps
from apportion.steps.sizes import StepReport, at_most, report
from batches import batch_of, random_rows, row


def of_lengths(*rollouts: list[int]) -> StepMap:
    """A step map whose steps have these lengths."""
    batch = batch_of(*("a" * sum(lengths) or "p" for lengths in rollouts))
    starts = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    for n, lengths in enumerate(rollouts):
        starts[n, [sum(lengths[:k]) for k in range(len(lengths))]] = True
    return number_steps(batch, starts)


@pytest.mark.parametrize(
    ("length", "limit", "pieces"),
    [
        pytest.param(30, 30, [30], id="just short enough"),
        pytest.param(31, 30, [16, 15], id="one too long"),
        pytest.param(60, 30, [30, 30], id="twice"),
        pytest.param(61, 30, [21, 20, 20], id="a third piece for one token"),
        pytest.param(7, 3, [3, 2, 2], id="lengths differ by one at most"),
        pytest.param(8, 3, [3, 3, 2], id="two of three longer"),
        pytest.param(3, 1, [1, 1, 1], id="tokens"),
    ],
)
def test_a_long_step_is_cut_into_as_few_pieces_as_will_do(length: int, limit: int, pieces: list[int]) -> None:
    assert at_most(splitters.whole, limit)(batch_of("a" * length)).lengths.tolist() == [pieces]


def test_pieces_are_counted_in_sampled_tokens_over_tool_gaps_and_rollouts() -> None:
    batch = pack(batch_of("paata", "aaaaa", "p", "aa"), 7)

    assert at_most(splitters.whole, 2)(batch).step_of.tolist() == [
        [-1, 0, 0, -1, 1, -1],
        [0, 0, 1, 1, 2, -1],
        [0, 0, -1, -1, -1, -1],
    ]


def test_boundaries_stay_where_they_were() -> None:
    batch = collate([row("aaaaaa", ["a\n", "b", "b", "b", "b\n", "c"])])

    assert splitters.lines(batch).step_of.tolist() == [[0, 1, 1, 1, 1, 2]]
    assert at_most(splitters.lines, 3)(batch).step_of.tolist() == [[0, 1, 1, 2, 2, 3]]


def test_a_step_has_at_most_30_tokens_unless_another_limit_is_named() -> None:
    assert at_most(splitters.whole)(batch_of("a" * 61)).lengths.tolist() == [[21, 20, 20]]


@pytest.mark.parametrize("tokens", [pytest.param(0, id="none"), pytest.param(-3, id="negative")])
def test_a_step_without_a_token_is_refused(tokens: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 token, at most {tokens} were asked for"):
        at_most(splitters.whole, tokens)


SPLITTERS = [splitters.whole, splitters.lines, splitters.turns, splitters.chunks(3), splitters.key_tokens("=")]


@given(random_rows(), st.sampled_from(SPLITTERS), st.integers(1, 6))
def test_pieces_keep_every_boundary_and_are_nearly_equal(
    rows: list[Rollout], splitter: splitters.Splitter, limit: int
) -> None:
    batch = collate(rows)
    before, after = splitter(batch), at_most(splitter, limit)(batch)
    lengths, own = before.lengths[before.mask].long(), before.cell[after.last_tokens()]
    counts = torch.bincount(own, minlength=before.mask.numel())[before.mask.flatten()]
    pieces = torch.split(after.lengths[after.mask].long(), counts.tolist())

    assert bool((after.lengths <= limit).all())
    assert bool((after.last_tokens() | ~before.last_tokens()).all())
    assert counts.tolist() == [-(-length // limit) for length in lengths.tolist()]
    assert [int(piece.sum()) for piece in pieces] == lengths.tolist()
    assert all(int(piece.max()) - int(piece.min()) <= 1 for piece in pieces)


@given(random_rows(), st.sampled_from(SPLITTERS))
def test_pieces_of_one_token_are_tokens_and_without_a_limit_nothing_is_cut(
    rows: list[Rollout], splitter: splitters.Splitter
) -> None:
    batch = collate(rows)

    assert torch.equal(at_most(splitter, 1)(batch).step_of, splitters.every_token(batch).step_of)
    assert torch.equal(at_most(splitter, 10**6)(batch).step_of, splitter(batch).step_of)


def test_steps_and_their_lengths_are_counted() -> None:
    found = report(of_lengths([1, 2, 7, 8], [20, 21, 30, 31, 60, 61, 200], [201], []))

    assert found == StepReport(
        rollouts=3,
        steps=12,
        per_rollout=(1, 1, 4, 7, 7),
        lengths=(1, 7, 21, 60, 201),
        histogram=(1, 2, 2, 2, 2, 2, 1),
        short=3 / 12,
        long=7 / 12,
        too_long=5 / 12,
        in_long=604 / 642,
    )


def test_of_a_single_step_all_or_nothing_is_short() -> None:
    assert report(of_lengths([1])).short == 1
    assert report(of_lengths([8])).short == 0
    assert report(of_lengths([])).short == 0


@pytest.mark.parametrize(
    ("rollouts", "verdict"),
    [
        pytest.param([[], []], "none", id="nothing sampled"),
        pytest.param([[100], [1], []], "whole answers", id="whole answers"),
        pytest.param([[1, 1, 1], [1]], "every token", id="every token"),
        pytest.param([[1], [1]], "whole answers", id="answers of one token"),
        pytest.param([[1, 1, 1, 1, 2]], "too fine", id="nearly every token"),
        pytest.param([[20, 8]], "healthy", id="8 and 20"),
        pytest.param([[7, 20]], "healthy", id="half of the steps are short"),
        pytest.param([[7, 7, 20]], "too fine", id="most steps are short"),
        pytest.param([[21, 11, 10]], "healthy", id="half of the tokens are in a long step"),
        pytest.param([[21, 10, 10]], "too coarse", id="most tokens are in a long step"),
        pytest.param([[3] * 50 + [151]], "too coarse", id="too coarse before too fine"),
    ],
)
def test_the_verdict_is_by_most_steps_and_most_tokens(rollouts: list[list[int]], verdict: str) -> None:
    assert report(of_lengths(*rollouts)).verdict == verdict


TEXTS = [
    pytest.param([[], []], "no step", id="none"),
    pytest.param(
        [[12], [5], [1000]],
        "3; 1 a rollout\n5 to 1,000 tokens, median 12\none step a rollout: chosen, or no boundary was found",
        id="whole answers",
    ),
    pytest.param(
        [[1] * 1001, [1]],
        "1,002; 1 to 1,001 a rollout, median 1\n1 token\nevery token a step: chosen, so its length says nothing",
        id="every token",
    ),
    pytest.param(
        [[2] * 9, [9, 40]],
        "11; 2 to 9 a rollout, median 2\n"
        "2 to 40 tokens, median 2\n"
        "82% under 8, 9% over 20, 9% over 30\n"
        "    2-7 #################### 9\n"
        "   8-20 ###                  1\n"
        "  21-30                      0\n"
        "  31-60 ###                  1\n"
        "too coarse: most tokens stand in steps over 20 tokens",
        id="too coarse",
    ),
    pytest.param(
        [[1, 1, 1, 1, 2]],
        "5; 5 a rollout\n"
        "1 to 2 tokens, median 1\n"
        "100% under 8, 0% over 20, 0% over 30\n"
        "      1 #################### 4\n"
        "    2-7 #####                1\n"
        "too fine: most steps have under 8 tokens",
        id="nearly every token",
    ),
    pytest.param(
        [[1, 1, 8]],
        "3; 3 a rollout\n"
        "1 to 8 tokens, median 1\n"
        "67% under 8, 0% over 20, 0% over 30\n"
        "      1 #################### 2\n"
        "    2-7                      0\n"
        "   8-20 ##########           1\n"
        "too fine: most steps have under 8 tokens",
        id="too fine",
    ),
    pytest.param(
        [[20] * 1000, [61, 201]],
        "1,002; 2 to 1,000 a rollout, median 2\n"
        "20 to 201 tokens, median 20\n"
        "0% under 8, 0% over 20, 0% over 30\n"
        "   8-20 #################### 1,000\n"
        "  21-30                      0\n"
        "  31-60                      0\n"
        " 61-200 #                    1\n"
        "   201- #                    1\n"
        "healthy: neither most steps under 8 nor most tokens in steps over 20",
        id="healthy",
    ),
]


@pytest.mark.parametrize(("rollouts", "text"), TEXTS)
def test_the_report_reads_as_a_few_lines(rollouts: list[list[int]], text: str) -> None:
    assert str(report(of_lengths(*rollouts))) == text


@given(random_rows(), st.sampled_from(SPLITTERS))
def test_the_report_counts_what_is_there(rows: list[Rollout], splitter: splitters.Splitter) -> None:
    steps = splitter(collate(rows))
    lengths = sorted(steps.lengths[steps.mask].int().tolist())
    counts = sorted(steps.counts[steps.counts > 0].tolist())
    found = report(steps)

    assert found.steps == sum(found.histogram) == len(lengths)
    assert found.rollouts == len(counts)
    if lengths:
        for five, numbers in ((found.lengths, lengths), (found.per_rollout, counts)):
            assert (five[0], five[4]) == (numbers[0], numbers[-1])
            for quarter in (1, 2, 3):
                assert five[quarter] == numbers[-(-len(numbers) * quarter // 4) - 1]
