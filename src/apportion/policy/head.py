"""The last hidden states of a model, without the logits that it would make of them.

Logits of a whole batch are by far the largest tensor of a training step. A model whose logits are just
hidden @ weight.T + bias can do without: `head_logprobs` makes them a part at a time. Many models scale or bend their
logits afterwards; theirs are asked for as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from apportion.errors import InputError


def plain_head(model: Any) -> nn.Linear | None:
    """Find the output head if the model's logits are what it gives and nothing else, or None.

    The model is run on two tokens while its head is given numbers of our own, small ones and large: whatever is done
    to logits afterwards would show.
    """
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if type(head) is not nn.Linear or type(head.weight) is not nn.Parameter:
        return None  # none, or an adapter, or a quantised or sharded one
    with torch.no_grad():
        direction = torch.arange(head.in_features, device=head.weight.device).cos().to(head.weight.dtype)
        # a head of zeros gives NaN from here on, and so tells nothing
        largest = linear(direction, head.weight, head.bias).abs().max()
        probe = torch.stack([direction / largest, direction * (1000 / largest)]).unsqueeze(0)
        expected = linear(probe, head.weight, head.bias)
        tokens = torch.zeros(1, 2, dtype=torch.int64, device=head.weight.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}
        logits, given = _run(model, head, inputs, lambda hidden: probe)
    alike = given is not None and logits.shape == expected.shape
    return head if alike and torch.allclose(logits.float(), expected.float(), rtol=1e-3, atol=1e-3) else None


def hidden_states(model: Any, head: nn.Linear, **inputs: Any) -> Float[Tensor, "B T D"]:
    """Run the model on inputs of its own and give what its head would be given.

    The head itself sees the first token of each row only. Raises InputError where it is not given one vector a token.
    """
    _, given = _run(model, head, inputs, lambda hidden: hidden[:, :1])
    if given is None:
        raise InputError(f"{type(model).__name__} gives its head no longer one vector a token")
    return given


def _run(
    model: Any, head: nn.Linear, inputs: dict[str, Any], instead: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Logits of the model with `instead(hidden)` for the hidden states, and these, if the head was given them once."""
    seen: list[Tensor] = []

    def note(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.extend(arguments)
        return tuple(instead(hidden) for hidden in arguments)

    handle = head.register_forward_pre_hook(note)
    try:
        logits = model(**inputs).logits
    finally:
        handle.remove()
    once = len(seen) == 1 and seen[0].shape == (*inputs["input_ids"].shape, head.in_features)
    return logits, seen[0] if once else None
