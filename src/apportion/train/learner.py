"""A module that is trained: with its optimiser, over all processes, a step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict

from apportion.train import heap
from apportion.train.processes import Wrapping, in_shards_like, whole

WHOLE = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
PLACED = state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


class Learner:
    """A module and the AdamW that moves it.

    module: as it is called while it is trained. learning_rate, max_grad_norm: as the config has them.
    """

    def __init__(
        self, module: nn.Module, wrap: Wrapping, *, learning_rate: float, weight_decay: float, max_grad_norm: float
    ) -> None:
        self._settings = {"lr": learning_rate, "weight_decay": weight_decay}
        self._max_grad_norm = max_grad_norm
        self._wrap = wrap
        self.module = wrap(module)
        self._give_back = heap.giver_back(self.module)
        heap.before_embeddings(self.module, self._give_back)
        trained = [weights for weights in self.module.parameters() if weights.requires_grad]
        self.optimiser = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=weight_decay)

    def step(self, parts: Sequence[Any], loss_of: Callable[[Any], Tensor]) -> tuple[float, float]:
        """One step of the optimiser along the gradient of the sum of losses of all parts, of all processes.

        Every process has as many parts. Gives the loss and the length of the gradient; where either is not finite, no
        step is taken.
        """
        across = self._wrap.across
        self.optimiser.zero_grad(set_to_none=True)
        self._give_back()
        loss = torch.zeros((), dtype=torch.float64)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else self._wrap.apart(self.module):
                own = loss_of(part)
                loss += own.detach().double().cpu()
                if own.requires_grad:
                    self._give_back()
                    (own * across.size).backward()  # type: ignore[no-untyped-call]  # the mean over processes is taken
        total = float(across.sum(loss))
        norm = float(whole(nn.utils.clip_grad_norm_(self.module.parameters(), self._max_grad_norm)))
        if math.isfinite(total) and math.isfinite(norm):
            self.optimiser.step()
        return total, norm

    def weights(self) -> list[Tensor]:
        """The weights, whole; all processes must ask for them."""
        return [whole(own.detach()) for own in self.module.parameters()]

    def take(self, weights: Iterable[Tensor]) -> None:
        """Take up weights as `weights` gives them."""
        with torch.no_grad():
            for own, new in zip(self.module.parameters(), weights, strict=True):
                own.copy_(in_shards_like(new, own))

    def state(self) -> dict[str, Any] | None:
        """The state of the optimiser, whole on the first process; all must ask for it. None before its first step."""
        if not self.optimiser.state:
            return None
        return state_dict.get_optimizer_state_dict(self.module, self.optimiser, options=WHOLE)

    def load(self, state: dict[str, Any] | None) -> None:
        """Take up that state, with the settings of this run."""
        if state is None:
            return
        state_dict.set_optimizer_state_dict(
            self.module, self.optimiser, state, options=PLACED if self._wrap.across.size > 1 else WHOLE
        )
        for group in self.optimiser.param_groups:
            group |= self._settings
