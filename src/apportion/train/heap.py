"""The heap of the C library, which keeps what is freed: given back to the system where a step would pile up on it.

Tensors of one pass are freed between others that live on. glibc keeps these holes, the next tensors go elsewhere, and a
process comes to hold a good part of a gibibyte that is in no use.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from apportion.policy.causal import SMALL


def giver_back(module: nn.Module) -> Callable[[], None]:
    """What gives the holes back while this module is trained: nothing, where they do not matter or stay.

    Where they do not matter: on a GPU, and for a small model, which would spend more time on new pages than it gains.
    Where they stay: with another C library than glibc.
    """
    weights = list(module.parameters())
    large = sum(own.numel() for own in weights if own.device.type == "cpu") >= SMALL
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

    def give_back() -> None:
        if large and trim:
            trim(0)

    return give_back


def before_embeddings(module: nn.Module, call: Callable[[], None]) -> None:
    """From now on call on the way back before the gradient of an embedding is made.

    That is as large as the embedding, and comes last, when what all layers had kept is free.
    """

    def note(embedding: nn.Module, given: Any, found: Any) -> None:
        if isinstance(found, Tensor) and found.requires_grad:
            found.register_hook(lambda gradient: call())  # type: ignore[no-untyped-call]

    for part in module.modules():
        if isinstance(part, nn.Embedding):
            part.register_forward_hook(note)
