"""How far the gradient of one prompt strays from that of another: by the credit given, and by outcome alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from apportion import losses, recipes
from apportion.ledger import Ledger, apportion
from apportion.policy import layouts
from apportion.policy.causal import CausalPolicy
from apportion.train.batch import Batch
from apportion.train.config import TrainConfig
from apportion.train.tally import Figures

PROMPTS = 8
"""Prompts that are looked at."""
NAMES = ("gradient_variance", "gradient_variance_ratio")


def gradient_variance(ledger: Ledger, policy: CausalPolicy, config: TrainConfig, order: torch.Generator) -> Figures:
    """Compute both for some prompts that `order` draws, with credit as it is before it is normalised.

    gradient_variance = sum over all weights of the variance, over prompts, of the policy gradient by a prompt's
    answers. gradient_variance_ratio = that, over the same by the sequence-level estimate, in which every token of an
    answer has the answer's reward over its group's mean. Unnormalised, both estimate one gradient, where values are
    right; so a ratio under 1 is what step credit is for. None where fewer than two prompts teach anything.
    """
    by_answer = apportion(ledger.rollouts, replace(recipes.dr_grpo(), reward=ledger.recipe.reward)).advantage
    by_credit = torch.where(ledger.mask, ledger.recipe.spread(ledger.credit, ledger.steps), 0)
    batch = Batch.of(ledger)
    teaches = ((by_answer != 0) | (by_credit != 0)).any(1)
    groups = torch.unique(batch.groups[teaches]).cpu()
    groups = groups[torch.randperm(len(groups), generator=order)[:PROMPTS]]
    if len(groups) < 2:
        return dict.fromkeys(NAMES)
    ours, theirs = Scatter(), Scatter()
    for group in groups.tolist():
        rows = (batch.groups == group).nonzero().squeeze(1)
        own, other = _gradients(batch, rows, (by_credit, by_answer), policy, config)
        ours.add(own)
        theirs.add(other)
    ratio = ours.variance / theirs.variance if theirs.variance else None
    return dict(zip(NAMES, (ours.variance, ratio), strict=True))


class Scatter:
    """The total variance of vectors that are added one at a time and not kept."""

    def __init__(self) -> None:
        self._count, self._squares, self._sum = 0, 0.0, torch.zeros(1)

    def add(self, vector: Tensor) -> None:
        self._count += 1
        self._squares += float(vector.double().square().sum())
        self._sum = vector + (self._sum if self._count > 1 else 0)

    @property
    def variance(self) -> float:
        """Sum of the variances of the entries, of the sample."""
        return (self._squares - float(self._sum.double().square().sum()) / self._count) / (self._count - 1)


def _gradients(
    batch: Batch, rows: Tensor, advantages: Sequence[Tensor], policy: CausalPolicy, config: TrainConfig
) -> list[Tensor]:
    """The policy gradient, the mean over these answers, by each of these advantages."""
    weights = [own for own in policy.scorer.parameters() if own.requires_grad]
    totals = [torch.zeros(sum(own.numel() for own in weights), device=rows.device) for _ in advantages]
    for part in torch.split(rows, config.micro_batch):
        own = batch.take(part)
        columns = (own.tokens, own.valid, own.action_mask)
        logprobs, _ = policy.logprobs(*columns, temperature=config.temperature, layout=layouts.BY_NAME[config.layout])
        for total, grid in zip(totals, advantages, strict=True):
            weight = grid[part, : logprobs.shape[1]]
            loss = losses.policy_gradient(logprobs, weight, own.mask).sum() / len(rows)
            found = torch.autograd.grad(loss, weights, retain_graph=grid is not advantages[-1])
            total += torch.cat([gradient.flatten() for gradient in found])
    return totals
