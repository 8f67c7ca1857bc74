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

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.trunk = copy.deepcopy(trunk_of(model)).requires_grad_(True)
        self.head = nn.Linear(_width(model), 1, device=model.device)
        _as_nothing(self.head)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        valid_mask: Bool[Tensor, "B T"],
        cells: Bool[Tensor, "B T"],
        *,
        layout: Layout = padded,
    ) -> Grid:
        """The values at these cells, 0 elsewhere, float32."""
        return at_cells(self.trunk, self.head, (tokens, valid_mask, cells), layout)


class ValueHead(nn.Module):
    """Values read off the trunk of the policy itself, which they do not move."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.trunk = [trunk_of(model)]  # in a list: not a part of this module, and so not trained with it
        width = _width(model)
        last = nn.Linear(width, 1, device=model.device)
        self.head = nn.Sequential(nn.Linear(width, width, device=model.device), nn.SiLU(), last)
        _as_nothing(last)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        valid_mask: Bool[Tensor, "B T"],
        cells: Bool[Tensor, "B T"],
        *,
        layout: Layout = padded,
    ) -> Grid:
        """The values at these cells, 0 elsewhere, float32."""
        frozen = _Frozen(self.trunk[0])
        return at_cells(frozen, self.head, (tokens, valid_mask, cells), layout)


BY_NAME = {"own": ValueModel, "head": ValueHead}


def trunk_of(model: Any) -> Any:
    """The model without its output head."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(base, base.base_model_prefix)


def at_cells(trunk: Any, head: nn.Module, rows: tuple[Tensor, Tensor, Tensor], layout: Layout) -> Grid:
    """What the head makes of the trunk's states at the cells that are wanted."""
    tokens, valid_mask, cells = rows
    grid = torch.zeros(tokens.shape, dtype=torch.float32, device=tokens.device)
    wanted = cells.any(1)
    if not bool(wanted.any()):
        return grid

    def run(**inputs: Any) -> Tensor:
        states: Tensor = trunk(**inputs).last_hidden_state
        return states

    states = layout(run, trunk, tokens[wanted], valid_mask[wanted], cells[wanted])
    return grid.masked_scatter(cells, head(states.float()).squeeze(1))


class _Frozen:
    """A trunk that no gradient reaches."""

    def __init__(self, trunk: Any) -> None:
        self.trunk, self.config = trunk, trunk.config

    def __call__(self, **inputs: Any) -> Any:
        with torch.no_grad():
            return self.trunk(**inputs)


def _width(model: Any) -> int:
    return int(model.config.get_text_config().hidden_size)


def _as_nothing(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
