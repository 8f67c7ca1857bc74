"""Log-probabilities and entropies take no more memory than promised."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apportion import logprobs
from apportion.logprobs import Both, head_logprobs, selected_logprobs


class Memory(TorchDispatchMode):
    """Bytes of tensors that came to be inside and are alive; those given are not counted."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known = {tensor.untyped_storage()._cdata for tensor in given}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, Tensor) and (key := tensor.untyped_storage()._cdata) not in self.known:
                self.known.add(key)
                size = tensor.untyped_storage().nbytes()
                self.now += size
                self.most = max(self.most, self.now)
                weakref.finalize(tensor.untyped_storage(), self._forget, key, size)
        return results

    def _forget(self, key: int, size: int) -> None:
        self.now -= size
        self.known.discard(key)


def taken(find: Callable[..., Both], leaves: list[Tensor], ids: Tensor, **options: Any) -> tuple[int, int]:
    """Bytes at most and bytes kept for the gradient, forwards and backwards, beyond the arguments and gradients."""
    with Memory(*leaves, ids) as memory:
        found = find(*leaves, ids, **options)
        kept = memory.now
        (found[0].sum() + found[1].sum()).backward()
    return memory.most - sum(leaf.nbytes for leaf in leaves if leaf.requires_grad), kept


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [pytest.param(dtype, id=str(dtype)) for dtype in (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize(("chunk", "rows"), [pytest.param(64, 64, id="64"), pytest.param(1, 2, id="1, the least")])
def test_chosen_logprobs_take_a_chunk_of_memory_and_keep_a_few_numbers_a_row(
    dtype: torch.dtype, chunk: int, rows: int
) -> None:
    most, kept = taken(selected_logprobs, [drawn(128, 2000, dtype=dtype)], torch.arange(128), chunk=chunk)

    assert 4 * rows * 2000 <= most < 4 * rows * 2000 + 60 * 128
    assert kept < 40 * 128


@pytest.mark.parametrize(("chunk", "words"), [pytest.param(64, 64, id="64"), pytest.param(1, 2, id="1, the least")])
def test_the_head_takes_a_chunk_of_memory_and_keeps_a_few_numbers_a_row(chunk: int, words: int) -> None:
    most, kept = taken(head_logprobs, [drawn(256, 4), drawn(500, 4)], torch.arange(256), chunk=chunk)

    assert 4 * 256 * words <= most < 4 * 256 * words + 100 * 256
    assert kept < 40 * 256


@pytest.mark.parametrize("size", [pytest.param(n, id=str(n)) for n in (50, 800)])
@pytest.mark.parametrize("rows", [pytest.param(n, id=str(n)) for n in (50, 800)])
def test_unless_told_otherwise_scratch_is_of_one_size_whatever_the_batch(
    monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setattr(logprobs, "SCRATCH", 2**12)
    ids = torch.arange(rows) % size

    for find, leaves in (
        (selected_logprobs, [drawn(rows, size)]),
        (head_logprobs, [drawn(rows, 2), drawn(size, 2)]),
    ):
        most, _ = taken(find, leaves, ids)
        assert 0.75 * 4 * 2**12 < most < 4 * 2**12 + 100 * rows


def test_scratch_is_of_eight_million_numbers() -> None:
    most, _ = taken(selected_logprobs, [drawn(40, 2**18)], torch.arange(40))

    assert 4 * 2**23 <= most < 4 * 2**23 + 60 * 40


@pytest.mark.slow
def test_of_4096_tokens_and_32000_words_in_bfloat16_less_than_49_megabytes_are_taken() -> None:
    logits, ids = drawn(4096, 32000, dtype=torch.bfloat16), torch.arange(4096) * 7

    most, _ = taken(selected_logprobs, [logits], ids, chunk=256)

    assert most < 49_152_000
    found, _ = selected_logprobs(logits.detach(), ids, chunk=256)
    exact = logits.detach().float().log_softmax(-1).gather(1, ids.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-5)
    assert (found <= 0).all()


@pytest.mark.slow
def test_of_4096_tokens_and_128000_words_a_head_takes_a_tenth_of_the_logits() -> None:
    most, _ = taken(head_logprobs, [drawn(4096, 16), drawn(128_000, 16)], torch.arange(4096))

    assert most < 4096 * 128_000 * 4 / 10
