"""Older rollouts, trained on once more beside the fresh ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from apportion.train.batch import Batch
from apportion.train.rows import stacked

ROUNDING = 1e-9
"""How far a share of a count may fall short of a whole number and still be it."""


class Replay:
    """Rows of the last `steps` batches that had something to teach; some of them join each fresh batch.

    They keep their credit, and the log-probabilities of the policy that sampled them: from these the loss takes their
    probability ratio, and clips it as in a later update on the same batch.
    """

    def __init__(self, share: float, steps: int) -> None:
        self._share, self._steps = share, steps
        self._kept: list[Batch] = []  # oldest first

    def joined(self, fresh: Batch, order: torch.Generator) -> Batch:
        """The fresh rows and, drawn among the older ones, as many as may be: at most `share` of them all."""
        if not self._kept:
            return fresh
        older = stacked(self._kept)
        most = int(len(fresh.tokens) * self._share / (1 - self._share) + ROUNDING)
        drawn = torch.randperm(len(older.tokens), generator=order)[:most]
        return stacked([fresh, older.take(drawn.to(older.tokens.device))]) if len(drawn) else fresh

    def keep(self, fresh: Batch) -> None:
        """Remember a batch for later ones, and forget the oldest."""
        if not self._share:
            return
        teaches = (fresh.advantages != 0).any(1).nonzero().squeeze(1)
        if len(teaches):
            kept = fresh.take(teaches)
            self._kept.append(replace(kept, fresh=torch.zeros_like(kept.fresh)))
        self._kept = self._kept[-self._steps :]

    def state(self) -> list[dict[str, Any]]:
        return [{name: column.cpu() for name, column in vars(batch).items()} for batch in self._kept]

    def load(self, state: Sequence[dict[str, Any]], device: torch.device) -> None:
        self._kept = [Batch(**{name: column.to(device) for name, column in batch.items()}) for batch in state]
