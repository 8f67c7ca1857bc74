"""A critic's network: the trunk of a causal language model, and a head that gives one number a token."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from apportion.policy.layouts import Layout, padded

Grid = Float[Tensor, "B T"]


class ValueModel(nn.Module):
    """Values of the states that rollouts run through; one rollout a row, padded on the right.

    The value at cell t is of the state after token t was read: before token t + 1 is chosen. It starts out as 0.
    """

    def __init__(self, trunk: Any, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        valid_mask: Bool[Tensor, "B T"],
        cells: Bool[Tensor, "B T"],
        *,
        layout: Layout = padded,
    ) -> Grid:
        """The values at these cells, 0 elsewhere, float32."""
        grid = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
        wanted = cells.any(1)
        if not bool(wanted.any()):
            return grid
        states = layout(self._states, self.trunk, tokens[wanted], valid_mask[wanted], cells[wanted])
        return grid.masked_scatter(cells, self.head(states.float()).squeeze(1))

    def _states(self, **inputs: Any) -> Tensor:
        states: Tensor = self.trunk(**inputs).last_hidden_state
        return states


def own_model(model: Any) -> ValueModel:
    """A trunk of its own, a copy of the policy's, that learns as a whole."""
    trunk = copy.deepcopy(trunk_of(model)).requires_grad_(True)
    return ValueModel(trunk, _silent(nn.Linear(_width(model), 1, device=model.device)))


def head_on(model: Any) -> ValueModel:
    """A head that reads the trunk of the policy itself, which it does not move."""
    width, device = _width(model), model.device
    last = _silent(nn.Linear(width, 1, device=device))
    return ValueModel(_Lent(trunk_of(model)), nn.Sequential(nn.Linear(width, width, device=device), nn.SiLU(), last))


BY_NAME = {"own": own_model, "head": head_on}


def trunk_of(model: Any) -> Any:
    """The model without its output head."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(base, base.base_model_prefix)


class _Lent:
    """The trunk of somebody else: no gradient reaches it, no module that holds it has it, and no copy copies it."""

    def __init__(self, trunk: Any) -> None:
        self.trunk, self.config = trunk, trunk.config

    def __call__(self, **inputs: Any) -> Any:
        with torch.no_grad():
            return self.trunk(**inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Lent:
        return self


def _width(model: Any) -> int:
    return int(model.config.get_text_config().hidden_size)


def _silent(linear: nn.Linear) -> nn.Linear:
    """The layer, with weights of 0."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
