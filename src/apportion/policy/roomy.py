"""A cache of keys and values with room behind them, so that a new token is written and not the whole copied."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer at the head of tensors that are longer by a quarter. For sampling: no gradients."""

    def __init__(self, layer: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self.keys: Tensor = layer.keys
        self.values: Tensor = layer.values
        self._room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *more: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Append, and give all there is."""
        held = self.keys.shape[-2]
        end = held + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < end:
            self._room = _with_room(self.keys, end), _with_room(self.values, end)
        keys, values = self._room
        keys[..., held:end, :], values[..., held:end, :] = key_states, value_states
        self.keys, self.values = keys[..., :end, :], values[..., :end, :]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these rows, in this order."""
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]
        self._room = None


def roomy(cache: Any) -> Any:
    """The same cache, with room in the layers that keep every token."""
    cache.layers = [RoomyLayer(layer) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def _with_room(states: Tensor, end: int) -> Tensor:
    longer = states.new_empty(*states.shape[:-2], end + end // 4 + 8, states.shape[-1])
    longer[..., : states.shape[-2], :] = states
    return longer
