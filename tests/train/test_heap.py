"""The heap is given back when it is to be, and only where it pays."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from apportion.train import heap

PIECE, PIECES = 2**16, 1000  # below what the C library asks the system for apart
glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs the heap of glibc"
)


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def holes() -> Iterator[None]:
    """Sixty megabytes of holes in the heap, with a piece behind them that lives on."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    pieces = [library.malloc(PIECE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    for piece in pieces[:-1]:
        library.free(piece)
    yield
    library.free(pieces[-1])


@glibc
def test_of_a_large_module_the_holes_are_given_back(monkeypatch: pytest.MonkeyPatch, holes: None) -> None:
    monkeypatch.setattr(heap, "SMALL", 12)
    before = resident()

    heap.giver_back(nn.Linear(3, 3))()

    assert before - resident() > 0.8 * PIECE * PIECES


@glibc
def test_of_a_small_module_they_are_kept(monkeypatch: pytest.MonkeyPatch, holes: None) -> None:
    monkeypatch.setattr(heap, "SMALL", 13)
    before = resident()

    heap.giver_back(nn.Linear(3, 3))()

    assert before - resident() < 0.1 * PIECE * PIECES


def test_the_call_comes_after_the_gradients_of_all_layers_and_before_that_of_the_embedding() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    seen: list[list[bool]] = []
    heap.before_embeddings(model, lambda: seen.append([own.grad is None for own in model.parameters()]))

    model(torch.tensor([1, 2])).sum().backward()

    assert seen == [[True, False, False, False, False]]


def test_without_a_gradient_nothing_is_called() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 1))
    calls: list[None] = []
    heap.before_embeddings(model, lambda: calls.append(None))
    with torch.no_grad():
        model(torch.tensor([1, 2]))
    model[0].requires_grad_(False)
    model(torch.tensor([1, 2])).sum().backward()

    assert not calls
