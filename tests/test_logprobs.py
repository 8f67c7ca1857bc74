"""Log-probabilities and entropies in little memory: the same numbers as in much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion.errors import InputError
from apportion.logprobs import Both, head_logprobs, selected_logprobs
from batches import FEWER, INF, NAN

LOG2 = math.log(2)
HALVES = torch.tensor([[0, 0, LOG2]], dtype=torch.float64)
"""Logits of the probabilities 1/4, 1/4 and 1/2."""


def in_full(logits: Tensor, ids: Tensor, temperature: float = 1.0) -> Both:
    """The same by the book, the whole vocabulary at once."""
    every = (logits / temperature).log_softmax(-1)
    return every.gather(1, ids.unsqueeze(1)).squeeze(1), torch.special.entr(every.exp()).sum(-1)


def through_head(logits: Tensor, ids: Tensor, **options: Any) -> Both:
    """`head_logprobs` of a head whose logits these are: each row looks up its own."""
    return head_logprobs(torch.eye(len(logits), dtype=logits.dtype), logits.T, ids, **options)


BOTH_WAYS = [pytest.param(selected_logprobs, id="of logits"), pytest.param(through_head, id="through the head")]
CHUNKS = [pytest.param(chunk, id=f"chunk {chunk}") for chunk in (None, 1, 2, 4, 7, 100)]


def drawn(rows: int, size: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator, dtype=torch.float64) * 3
    return logits.to(dtype), torch.randint(size, (rows,), generator=generator)


def gradients(found: Both, leaves: list[Tensor]) -> list[Tensor]:
    """Of a weighted sum in which every number of both outputs has a weight of its own."""
    weights = torch.arange(1, 2 * len(found[0]) + 1, dtype=found[0].dtype).view(2, -1).sin()
    return list(torch.autograd.grad((torch.stack(found) * weights).sum(), leaves))


# --- the numbers


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_token_of_probability_a_quarter_by_hand(way: Callable[..., Both], chunk: int | None) -> None:
    logits = HALVES.clone().requires_grad_()

    found, entropy = way(logits, torch.tensor([1]), chunk=chunk)

    assert found.item() == pytest.approx(-2 * LOG2, rel=1e-15)
    assert entropy.item() == pytest.approx(1.5 * LOG2, rel=1e-15)
    (slope,) = torch.autograd.grad(found, logits, retain_graph=True)
    assert slope[0].tolist() == pytest.approx([-0.25, 0.75, -0.5], rel=1e-14)
    (slope,) = torch.autograd.grad(entropy, logits)
    assert slope[0].tolist() == pytest.approx([0.125 * LOG2, 0.125 * LOG2, -0.25 * LOG2], rel=1e-14)


@pytest.mark.parametrize("way", BOTH_WAYS)
def test_temperature_divides_the_logits_first(way: Callable[..., Both]) -> None:
    logits, ids = torch.tensor([[2.0, 1, 0]]), torch.tensor([0])

    assert way(logits, ids, temperature=0.5)[0].item() == pytest.approx(-0.142932, abs=1e-6)
    assert way(logits, ids)[0].item() == pytest.approx(-0.407606, abs=1e-6)


@pytest.mark.parametrize("way", BOTH_WAYS)
@FEWER
@given(
    rows=st.integers(1, 6),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.25, 0.7, 1.0, 2.0]),
    chunk=st.sampled_from([None, 1, 2, 4, 6, 7, 50]),
)
def test_in_any_chunks_the_numbers_and_gradients_are_those_of_the_whole_softmax(
    way: Callable[..., Both], rows: int, size: int, seed: int, temperature: float, chunk: int | None
) -> None:
    logits, ids = drawn(rows, size, seed=seed)
    leaf = logits.clone().requires_grad_()

    found = way(leaf, ids, temperature=temperature, chunk=chunk)
    expected = in_full(leaf, ids, temperature)

    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(found, [leaf]), gradients(expected, [leaf]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize(
    "needed",
    [pytest.param(n, id="+".join(n)) for n in (["hidden"], ["weight"], ["bias"], ["hidden", "weight", "bias"])],
)
def test_the_head_alone_the_hidden_states_alone_or_all_get_the_gradient_of_the_whole(
    chunk: int | None, needed: list[str]
) -> None:
    generator = torch.Generator().manual_seed(1)
    columns = {"hidden": (5, 3), "weight": (7, 3), "bias": (7,)}
    parts = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=name in needed)
        for name, shape in columns.items()
    }
    ids = torch.tensor([0, 6, 3, 3, 1])
    leaves = [parts[name] for name in needed]

    found = head_logprobs(parts["hidden"], parts["weight"], ids, bias=parts["bias"], temperature=0.7, chunk=chunk)
    expected = in_full(parts["hidden"] @ parts["weight"].T + parts["bias"], ids, 0.7)

    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(found, leaves), gradients(expected, leaves), rtol=1e-11, atol=1e-12)


def test_both_gradients_are_the_limit_of_differences() -> None:
    logits, ids = drawn(3, 5)
    hidden, weight = drawn(3, 2, seed=1)[0].requires_grad_(), drawn(5, 2, seed=2)[0].requires_grad_()

    torch.autograd.gradcheck(lambda x: selected_logprobs(x, ids, temperature=0.7), logits.requires_grad_())
    torch.autograd.gradcheck(lambda x, y: head_logprobs(x, y, ids, temperature=0.7, chunk=4), (hidden, weight))


@pytest.mark.parametrize("way", BOTH_WAYS)
def test_in_float32_a_large_vocabulary_is_as_exact_as_the_whole_softmax(way: Callable[..., Both]) -> None:
    logits, ids = drawn(16, 5000, dtype=torch.float32)
    leaf, exact = logits.requires_grad_(), logits.detach().double().requires_grad_()

    found, expected = way(leaf, ids, chunk=300), in_full(exact, ids)

    torch.testing.assert_close(found, tuple(e.float() for e in expected), rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients(found, [leaf])[0].double(), gradients(expected, [exact])[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("offset", [pytest.param(offset, id=str(offset)) for offset in (-3e4, 0.0, 3e4)])
def test_logits_far_from_nought_give_the_same_numbers(way: Callable[..., Both], offset: float) -> None:
    logits = torch.tensor([[0.0, 1, 2, -64]]) + offset

    found, entropy = way(logits, torch.tensor([2]), chunk=4)

    assert found.item() == pytest.approx(-0.407606, abs=1e-6)
    assert entropy.item() == pytest.approx(0.832396, abs=1e-6)


@pytest.mark.parametrize("way", BOTH_WAYS)
@FEWER
@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-3, 1.0, 10.0, 1e3]), chunk=st.sampled_from([None, 2, 6]))
def test_no_log_probability_is_above_nought_and_no_entropy_below(
    way: Callable[..., Both], seed: int, scale: float, chunk: int | None
) -> None:
    logits, ids = drawn(32, 8, seed=seed, dtype=torch.float32)

    found, entropy = way(logits * scale, ids, chunk=chunk)
    certain, _ = way(logits * scale, logits.argmax(1), chunk=chunk)

    assert (found <= 0).all()
    assert (certain <= 0).all()
    assert (entropy >= 0).all()
    assert (entropy <= math.log(8) + 1e-5).all()


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_entropy_of_certain_even_and_partly_forbidden_choices_is_a_number(
    way: Callable[..., Both], chunk: int | None
) -> None:
    probabilities = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0], [0.5, 0.5, 0, 0]])

    entropies = [way(row.log().unsqueeze(0), torch.tensor([0]), chunk=chunk)[1].item() for row in probabilities]

    assert entropies == pytest.approx([1.386294, 0, 0.693147], abs=1e-6)


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_forbidden_token_changes_no_number_and_has_no_gradient(way: Callable[..., Both], chunk: int | None) -> None:
    logits, _ = drawn(1, 6)
    forbidden = torch.tensor([True, True, False, False, True, False])
    allowed = logits[:, ~forbidden].requires_grad_()
    leaf = logits.masked_fill(forbidden, -INF).requires_grad_()

    for place, same in ((2, 0), (3, 1), (5, 2)):
        found, expected = way(leaf, torch.tensor([place]), chunk=chunk), in_full(allowed, torch.tensor([same]))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        (slope,), (expected_slope,) = gradients(found, [leaf]), gradients(expected, [allowed])
        assert slope[:, forbidden].eq(0).all()
        torch.testing.assert_close(slope[:, ~forbidden], expected_slope, rtol=1e-12, atol=1e-12)


def test_a_head_forbids_by_its_bias() -> None:
    hidden, weight = drawn(2, 3)[0].requires_grad_(), drawn(4, 3, seed=1)[0].requires_grad_()
    bias = torch.tensor([-INF, 0, -INF, 0.5], dtype=torch.float64)
    ids = torch.tensor([1, 3])

    found = head_logprobs(hidden, weight, ids, bias=bias, chunk=2)
    expected = in_full((hidden @ weight.T + bias)[:, [1, 3]], torch.tensor([0, 1]))

    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slopes, expected_slopes = gradients(found, [hidden, weight]), gradients(expected, [hidden, weight])
    torch.testing.assert_close(slopes, expected_slopes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", BOTH_WAYS)
def test_a_forbidden_token_that_was_chosen_all_the_same_has_no_probability_and_a_finite_gradient(
    way: Callable[..., Both],
) -> None:
    leaf = torch.tensor([[0.0, -INF, 0.0]]).requires_grad_()

    found, entropy = way(leaf, torch.tensor([1]))

    assert found.item() == -INF
    assert entropy.item() == pytest.approx(LOG2, rel=1e-6)
    assert torch.autograd.grad(found, leaf)[0].tolist() == [[-0.5, 1, -0.5]]


def test_a_row_without_a_number_spoils_no_other() -> None:
    logits, ids = drawn(3, 4)
    hidden, weight = drawn(3, 2, seed=1)[0], drawn(4, 2, seed=2)[0]
    clean = *selected_logprobs(logits, ids, chunk=2), *head_logprobs(hidden, weight, ids, chunk=2)
    logits[1] = hidden[1] = NAN

    found = *selected_logprobs(logits, ids, chunk=2), *head_logprobs(hidden, weight, ids, chunk=2)

    assert all(f[1].isnan() for f in found)
    torch.testing.assert_close([f[[0, 2]] for f in found], [c[[0, 2]] for c in clean], rtol=0, atol=0)


# --- precision


def test_logits_rounded_to_bfloat16_move_a_ratio_by_nearly_five_per_cent() -> None:
    logits, ids = torch.tensor([[20.06, 19.97]]), torch.tensor([0])

    exact, _ = selected_logprobs(logits, ids)
    rounded, _ = selected_logprobs(logits.bfloat16(), ids)

    assert exact.item() == pytest.approx(-0.649159, abs=1e-6)
    assert rounded.item() == pytest.approx(-0.693147, abs=1e-6)
    assert (exact - rounded).exp().item() == pytest.approx(1.04497, abs=1e-5)


def test_a_head_in_bfloat16_does_not_round_its_logits() -> None:
    hidden, weight = torch.ones(1, 2).bfloat16(), torch.tensor([[20, 0.0625], [20, -0.03125]]).bfloat16()

    exact, _ = head_logprobs(hidden, weight, torch.tensor([0]))
    rounded, _ = selected_logprobs(hidden @ weight.T, torch.tensor([0]))

    assert exact.item() == pytest.approx(-math.log1p(math.exp(-0.09375)), abs=1e-6)
    assert rounded.item() == pytest.approx(-LOG2, abs=1e-6)


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=name) for name in ("bfloat16", "float16", "float32", "float64")]
)
def test_numbers_are_float32_or_wider_and_gradients_of_the_dtype_they_belong_to(name: str) -> None:
    dtype = getattr(torch, name)
    logits, ids = drawn(4, 9, dtype=dtype)
    hidden, weight = drawn(4, 3, dtype=dtype)[0], drawn(9, 3, seed=1, dtype=dtype)[0]
    leaves = [x.requires_grad_() for x in (logits, hidden, weight)]
    wide = [x.detach().to(torch.promote_types(dtype, torch.float32)).requires_grad_() for x in leaves]

    for found, expected, used in (
        (selected_logprobs(logits, ids), in_full(wide[0], ids), slice(0, 1)),
        (head_logprobs(hidden, weight, ids), in_full(wide[1] @ wide[2].T, ids), slice(1, 3)),
    ):
        assert [f.dtype for f in found] == [wide[0].dtype] * 2
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        slopes, wide_slopes = gradients(found, leaves[used]), gradients(expected, wide[used])
        assert [slope.dtype for slope in slopes] == [dtype] * len(slopes)
        torch.testing.assert_close(slopes, [slope.to(dtype) for slope in wide_slopes])


def test_the_gradient_of_a_head_in_bfloat16_is_rounded_once_and_not_with_every_token() -> None:
    hidden, weight = torch.ones(1024, 1).bfloat16(), torch.zeros(2, 1).bfloat16().requires_grad_()
    ids = torch.cat([torch.zeros(513), torch.ones(511)]).long()

    head_logprobs(hidden, weight, ids)[0].sum().backward()

    assert weight.grad is not None
    assert weight.grad.tolist() == [[1.0], [-1.0]]  # 513 - 1024 / 2, 511 - 1024 / 2


def test_autocast_takes_nothing_from_the_precision_of_the_head() -> None:
    hidden, weight = (
        drawn(6, 3, dtype=torch.float32)[0].requires_grad_(),
        drawn(9, 3, dtype=torch.float32)[0].requires_grad_(),
    )
    ids = torch.tensor([0, 1, 2, 6, 7, 8])
    plain = head_logprobs(hidden, weight, ids)
    slopes = gradients(plain, [hidden, weight])

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = head_logprobs(hidden, weight, ids)
        again = gradients(found, [hidden, weight])

    torch.testing.assert_close(found, plain, rtol=0, atol=0)
    torch.testing.assert_close(again, slopes, rtol=0, atol=0)


# --- the door


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize(
    ("ids", "options", "why"),
    [
        pytest.param([0, 3], {}, "place 1: the token id is 3, and the vocabulary holds 3", id="beyond"),
        pytest.param([-1, 0], {}, "place 0: the token id is -1, and the vocabulary holds 3", id="below"),
        pytest.param([0, 0], {"temperature": 0.0}, "temperature is 0.0; .* above 0", id="no temperature"),
        pytest.param([0, 0], {"temperature": NAN}, "temperature is nan; .* above 0", id="temperature is no number"),
        pytest.param([0, 0], {"chunk": 0}, "chunk is 0; .* at least 1", id="no chunk"),
    ],
)
def test_ids_outside_the_vocabulary_and_impossible_options_are_refused(
    way: Callable[..., Both], ids: list[int], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        way(torch.zeros(2, 3), torch.tensor(ids), **options)


@pytest.mark.parametrize("way", BOTH_WAYS)
@pytest.mark.parametrize("chunk", [pytest.param(None, id="free"), pytest.param(3, id="chunk 3")])
def test_of_no_token_there_is_no_number_and_a_gradient_of_nought(way: Callable[..., Both], chunk: int | None) -> None:
    leaf = torch.zeros(0, 5).requires_grad_()
    hidden, weight = torch.zeros(0, 2).requires_grad_(), torch.ones(5, 2).requires_grad_()
    none = torch.zeros(0, dtype=torch.int64)

    found = way(leaf, none, chunk=chunk)
    (found[0].sum() + found[1].sum()).backward()
    head_logprobs(hidden, weight, none, chunk=chunk)[0].sum().backward()

    assert [f.shape for f in found] == [(0,), (0,)]
    assert leaf.grad is not None
    assert leaf.grad.shape == (0, 5)
    assert weight.grad is not None
    assert weight.grad.eq(0).all()


@pytest.mark.parametrize("way", BOTH_WAYS)
def test_nothing_that_is_given_is_written_into(way: Callable[..., Both]) -> None:
    logits, ids = drawn(4, 5)
    before, leaf = logits.clone(), logits.requires_grad_()

    first = way(leaf, ids, temperature=0.5, chunk=2)
    slopes = gradients(first, [leaf])
    again = way(leaf, ids, temperature=0.5, chunk=2)

    assert torch.equal(leaf, before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(gradients(again, [leaf])[0], slopes[0])
