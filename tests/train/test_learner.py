"""A step of the optimiser and what it does to memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from apportion.across import ALONE
from apportion.train import heap
from apportion.train.learner import Learner
from apportion.train.processes import Wrapping


def test_memory_is_given_back_before_a_step_and_in_every_part_before_it_goes_back_and_before_the_embedding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 1))
    seen: list[str] = []
    monkeypatch.setattr(heap, "giver_back", lambda module: lambda: seen.append("given back"))
    learner = Learner(model, Wrapping(ALONE), learning_rate=0.1, weight_decay=0.0, max_grad_norm=1.0)
    model[1].weight.register_hook(lambda gradient: seen.append("layer"))  # type: ignore[no-untyped-call]
    model[0].weight.register_hook(lambda gradient: seen.append("embedding"))  # type: ignore[no-untyped-call]

    def loss_of(part: int) -> torch.Tensor:
        seen.append("forward")
        found: torch.Tensor = model(torch.tensor([part])).sum()
        return found

    learner.step([1, 2], loss_of)

    part = ["forward", "given back", "layer", "given back", "embedding"]
    assert seen == ["given back", *part, *part]
