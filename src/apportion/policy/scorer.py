"""A causal language model as a module that gives log-probabilities: one forward call, whatever wraps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from apportion.logprobs import head_logprobs, selected_logprobs
from apportion.policy.head import hidden_states, plain_head
from apportion.policy.layouts import Layout, padded

WHOLE_LOGITS = 2**22
"""Logits of at most so many numbers are made as a whole: that is quicker, and little memory."""


class Scorer(nn.Module):
    """Log-probability and entropy of sampled tokens. Each row holds one rollout, padded on the right.

    head: the output head, where logits are its alone: then they need not be made as a whole.
    lean: what layers find on their way is not kept for the gradient, but found once more.
    bf16: the model computes in bfloat16; log-probabilities are worked out in float32 all the same.
    """

    def __init__(self, model: Any, *, lean: bool = False, bf16: bool = False) -> None:
        super().__init__()
        self.model = model
        self.lean, self.bf16 = lean, bf16
        self.head = [plain_head(model)]  # in a list, so that its weights are not named a second time

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        valid_mask: Bool[Tensor, "B T"],
        action_mask: Bool[Tensor, "B T"],
        *,
        temperature: float,
        layout: Layout = padded,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probability of every sampled token and entropy of the distribution it was drawn from, float32, in nats.

        Both at the sampling temperature; 0 where a token was not sampled. A row's first token is never a sampled one.
        """
        grid = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
        rows = action_mask.any(1)
        if not bool(rows.any()):
            return grid, grid
        cells = torch.zeros_like(action_mask)
        cells[:, :-1] = action_mask[:, 1:]
        ids = tokens[action_mask]
        head = self.head[0]
        if head is not None and tokens.numel() * head.out_features > WHOLE_LOGITS:
            states = layout(self._states, self.model, tokens[rows], valid_mask[rows], cells[rows])
            chosen, entropy = head_logprobs(states, head.weight, ids, bias=head.bias, temperature=temperature)
        else:
            logits = layout(self._logits, self.model, tokens[rows], valid_mask[rows], cells[rows])
            chosen, entropy = selected_logprobs(logits, ids, temperature=temperature)
        return grid.masked_scatter(action_mask, chosen.float()), grid.masked_scatter(action_mask, entropy.float())

    def _states(self, **inputs: Any) -> Tensor:
        head = self.head[0]
        assert head is not None
        with training(self.model, self.lean), in_bf16(self.model, self.bf16):
            return hidden_states(self.model, head, **inputs)

    def _logits(self, **inputs: Any) -> Tensor:
        with training(self.model, self.lean), in_bf16(self.model, self.bf16):
            logits: Tensor = self.model(**inputs).logits
        return logits


def in_bf16(model: Any, bf16: bool) -> torch.autocast:
    """Within, the model computes in bfloat16, if it is to."""
    return torch.autocast(model.device.type, torch.bfloat16, enabled=bf16)


@contextmanager
def training(model: Any, lean: bool) -> Iterator[None]:
    """Within, a lean model is in training mode, where it keeps little for the gradient; otherwise it never is."""
    model.train(lean and torch.is_grad_enabled())
    try:
        yield
    finally:
        model.eval()
