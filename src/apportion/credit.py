"""Credit: what each step changed. Pure functions on the dense step grid, rewards and values [N, K] in, credit out.

Conventions. `rewards[k]` is earned at step k; `values[k]` is the expected return of the state just before step k; the
value after the last step is 0. Entries past a rollout's last step are 0 in both arguments, and so in the result. The
unit of `gamma` and `lam` is a step, whatever the splitter made of it: a run of tool tokens between two steps costs
nothing.

With delta[k] = rewards[k] + gamma * values[k+1] - values[k], every function here obeys one law, *peeled conservation*:
    sum_k gamma^k (credit[k] - gamma * lam * credit[k+1]) = sum_k gamma^k rewards[k] - values[0].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

Credit = Callable[[Float[Tensor, "N K"], Float[Tensor, "N K"]], Float[Tensor, "N K"]]


def td_errors(rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"], *, gamma: float) -> Float[Tensor, "N K"]:
    """Compute delta[k] = rewards[k] + gamma * values[k+1] - values[k].

    >>> td_errors(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), gamma=1.0)
    tensor([[-0.2500,  0.7500]])
    """
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    return rewards + gamma * after - values


def gae(
    rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"], *, gamma: float, lam: float
) -> Float[Tensor, "N K"]:
    """Compute generalised advantage estimates: credit[k] = delta[k] + gamma * lam * credit[k+1].

    Law: peeled conservation. Source: arXiv:1506.02438, eq. 16.

    >>> gae(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), gamma=1.0, lam=0.5)
    tensor([[0.1250, 0.7500]])
    """
    deltas = td_errors(rewards, values, gamma=gamma)
    running = torch.zeros_like(deltas[:, 0])
    columns = []
    for delta in reversed(deltas.unbind(dim=1)):
        running = delta + gamma * lam * running
        columns.append(running)
    return torch.stack(columns[::-1], dim=1)


def gae_with(*, gamma: float, lam: float) -> Credit:
    """Fix gamma and lam, for a row of the recipe table."""
    return partial(gae, gamma=gamma, lam=lam)


def telescoping(rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Compute value differences: credit[k] = rewards[k] + values[k+1] - values[k].

    Law: conservation, sum_k credit[k] = sum_k rewards[k] - values[0]; consistency, the credit of a step cut in two is
    the sum of its parts. Identity: gae(gamma=1, lam=0). Source: VinePPO, arXiv:2410.01679.

    >>> telescoping(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]))
    tensor([[-0.2500,  0.7500]])
    """
    return td_errors(rewards, values, gamma=1.0)


def to_go(rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Compute reward to go over the baseline: credit[k] = sum_{j >= k} rewards[j] - values[k].

    Law: peeled conservation with gamma = lam = 1. Identity: gae(gamma=1, lam=1). Source: arXiv:1506.02438, eq. 18.

    >>> to_go(torch.tensor([[0.5, 1.0]]), torch.tensor([[0.5, 0.25]]))
    tensor([[1.0000, 0.7500]])
    """
    return rewards.flip(1).cumsum(1).flip(1) - values
