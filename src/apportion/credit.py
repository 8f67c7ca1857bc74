"""Credit: what each step changed. Pure functions on the dense step grid, rewards and values [N, K] in, credit out.

Conventions. `rewards[k]` is earned at step k; `values[k]` is the expected return of the state just before step k; the
value after the last step is 0 (a rollout that was cut off has what was still expected among its rewards, see
`rewards.mixing.Bootstrapped`). Entries past a rollout's last step are 0 in both arguments, and so in the result; all
entries are finite. The unit of `gamma` and `lam` is a step, whatever the splitter made of it: a token, a line, a turn.
A run of tool tokens between two steps costs nothing.

Where the environment speaks between two steps there are two states to read a value in, and the choice of one is the
choice of where the change that it made goes. `StepMap.first` reads after it spoke: the change is credited to the step
before, which asked. `StepMap.resumed` reads before: the change is credited to the step that comes next. With both,
`environment_account` keeps it apart. All three close the books.

With delta[k] = rewards[k] + gamma * values[k+1] - values[k], the estimators here obey one law, *peeled conservation*:
    sum_k gamma^k (credit[k] - gamma * lam * credit[k+1]) = sum_k gamma^k rewards[k] - values[0].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from apportion import compiled
from apportion.errors import InputError

Credit = Callable[[Float[Tensor, "N K"], Float[Tensor, "N K"]], Float[Tensor, "N K"]]


def td_errors(rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"], *, gamma: float) -> Float[Tensor, "N K"]:
    """Compute delta[k] = rewards[k] + gamma * values[k+1] - values[k].

    >>> td_errors(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), gamma=1.0)
    tensor([[-0.2500,  0.7500]])
    """
    deltas = rewards - values
    deltas[:, :-1].add_(values[:, 1:], alpha=gamma)
    return deltas


def gae(
    rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"], *, gamma: float, lam: float
) -> Float[Tensor, "N K"]:
    """Compute generalised advantage estimates: credit[k] = delta[k] + gamma * lam * credit[k+1].

    Law: peeled conservation. Source: arXiv:1506.02438, eq. 16. In time linear in N * K, without a loop over steps; on
    the CPU a compiled one takes its place, where numba is installed.

    >>> gae(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), gamma=1.0, lam=0.5)
    tensor([[0.1250, 0.7500]])
    """
    if compiled.ready(rewards, values):
        rows, steps = rewards.shape
        first = torch.arange(0, rows * steps, steps)
        grids = rewards, values, torch.ones(rows, steps, dtype=torch.bool)
        return compiled.credit_to_go(grids, (first, first + steps - 1), gamma=gamma, decay=gamma * lam)
    return _sums_to_go(td_errors(rewards, values, gamma=gamma), gamma * lam, block=32)


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


def clipped(credit: Credit, *, most: float) -> Credit:
    """Keep every step's credit within +-most, so that one absurd value cannot rule a gradient.

    What is cut off is lost: a recipe that clips does not declare conservation. Raises InputError unless most > 0.

    >>> clipped(telescoping, most=0.5)(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.25]]))
    tensor([[0.0000, 0.5000]])
    """
    if not most > 0:
        raise InputError(f"credit can be clipped to a positive size only, got {most}")

    def within(rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        return credit(rewards, values).clamp(-most, most)

    return within


def environment_account(
    rewards: Float[Tensor, "N K"], values: Float[Tensor, "N K"], resumed: Float[Tensor, "N K"]
) -> tuple[Float[Tensor, "N K"], Float[Tensor, "N K"]]:
    """Keep what the environment changed off the steps: (credit of steps, account of the environment before each step).

    credit[k] = rewards[k] + resumed[k+1] - values[k]; account[k] = values[k] - resumed[k].

    values: before each step, once the environment had spoken. resumed: before it spoke.
    Law: credit and account together sum to sum_k rewards[k] - resumed[0]. Identity: where nobody spoke in between, the
    account is 0 and the credit that of `telescoping`.

    >>> environment_account(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), torch.tensor([[0.5, 0.75]]))
    (tensor([[0.2500, 0.7500]]), tensor([[ 0.0000, -0.5000]]))
    """
    account = values - resumed
    return td_errors(rewards, resumed, gamma=1.0) - account, account


def _sums_to_go(entries: Float[Tensor, "N K"], decay: float, block: int) -> Float[Tensor, "N K"]:
    """Compute out[k] = sum_{j >= k} decay^(j-k) entries[j], and write into `entries` on the way.

    Rows are cut into blocks, and a block is summed by a product with a triangle of powers. What all later blocks send
    back to a block is the same kind of sum over the blocks' totals; it comes in through the block's last entry.
    """
    rows, steps = entries.shape
    if steps <= block:
        return entries @ _triangle(steps, decay, entries)
    if steps % block:
        entries = torch.nn.functional.pad(entries, (0, -steps % block))
    weights = _triangle(block, decay, entries)
    blocks = entries.view(-1, block)
    totals = (blocks @ weights[:, 0]).view(rows, -1)
    later = _sums_to_go(totals, decay**block, block=128)[:, 1:]
    entries.view(rows, -1, block)[:, :-1, -1].add_(later, alpha=decay)
    return (blocks @ weights).view(rows, -1)[:, :steps]


def _triangle(size: int, decay: float, like: Tensor) -> Float[Tensor, "C C"]:
    """Compute weights[j, k] = decay^(j-k) for j >= k, else 0; so are powers too small to have full precision."""
    least = torch.finfo(like.dtype).tiny
    powers = (decay**j for j in range(size))
    zeros_first = [0.0] * (size - 1) + [power if power >= least else 0.0 for power in powers]
    return torch.tensor(zeros_first, dtype=like.dtype, device=like.device).unfold(0, size, 1).flip(1)
