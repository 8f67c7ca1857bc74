"""Shaping: rewards scaled, clipped, gathered in blocks, kept at key steps only; and terms for every sampled token.

Step grids are [N, K] with `mask` True where a step is; token grids are [B, T] with `mask` True where a token was
sampled. Everything else comes out exactly 0, whatever stood there. A token grid becomes a part of the reward by
`StepMap.sum`, which keeps its total.

What shaping takes away is never lost from sight: it is a part with a name of its own (`clip_total`), or it comes back
beside what was kept (`key_steps_only`), so that the books close.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rewards.bounds import refuse_outside
from apportion.steps.grid import StepMap


class Gated(NamedTuple):
    """Process rewards let through, which are the part of the reward, and those held back, which are for the log."""

    kept: Float[Tensor, "N K"]
    dropped: Float[Tensor, "N K"]


def scale(rewards: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], *, factor: float) -> Float[Tensor, "N K"]:
    """Compute scaled[k] = factor * rewards[k].

    Law: sums are multiplied by the factor, so parts that are all scaled add up to the scaled total. Identity:
    scale(1) changes nothing; scale(a), then scale(b), is scale(a * b).

    Raises InputError for a factor that is not finite or below 0.

    >>> scale(torch.tensor([[1.0, 9.0]]), torch.tensor([[True, False]]), factor=0.25)
    tensor([[0.2500, 0.0000]])
    """
    refuse_outside("factor", factor, 0.0)
    return factor * torch.where(mask, rewards, 0)


def clip(
    rewards: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], *, low: float = -1.0, high: float = 1.0
) -> Float[Tensor, "N K"]:
    """Compute clipped[k] = min(max(rewards[k], low), high).

    Law: clipping twice is clipping once; no sign is turned. A clipped sum is not the sum of clipped parts: to clip the
    reward as a whole use `clip_total`.

    Raises InputError unless low <= 0 <= high and low < high: a step that earned nothing must stay at nothing.

    >>> clip(torch.tensor([[-3.0, 0.5, 9.0]]), torch.tensor([[True, True, False]]))
    tensor([[-1.0000,  0.5000,  0.0000]])
    """
    if not (low <= 0 <= high and low < high):
        raise InputError(f"rewards are clipped to a range that holds 0, low before high; {low} to {high} came")
    return torch.where(mask, rewards, 0).clamp(low, high)


def clip_total(
    parts: dict[str, Tensor], mask: Bool[Tensor, "N K"], *, low: float = -1.0, high: float = 1.0
) -> dict[str, Tensor]:
    """Clip the sum of the parts, every part left as it is; what that took is the part `clipped`.

    clipped = clip(sum of parts) - sum of parts. Law: the parts add up to `clip` of what they added up to before.
    Identity: where no sum is outside the range, `clipped` is 0.

    Raises InputError as `clip`.

    >>> clip_total({"outcome": torch.tensor([[1.0]]), "process": torch.tensor([[0.5]])}, torch.tensor([[True]]))
    {'outcome': tensor([[1.]]), 'process': tensor([[0.5000]]), 'clipped': tensor([[-0.5000]])}
    """
    used = {name: torch.where(mask, part, 0) for name, part in parts.items()}
    total = torch.stack(list(used.values())).sum(0)
    taken = clip(total, mask, low=low, high=high) - total
    return used | {"clipped": used.get("clipped", 0) + taken}


def block_sums(scores: Float[Tensor, "B T"], steps: StepMap, *, size: int = 200) -> Float[Tensor, "N K"]:
    """Gather token scores in blocks of `size` sampled tokens; pay each block's sum at the step in which it ends.

    Blocks are counted on sampled tokens, over all turns; the last may be shorter. Blocks that end in one step add up.
    Law: a rollout's row sums to its token scores. Identity: size 1 is `StepMap.sum`; a block as long as the rollout
    pays all at the last step.

    Raises InputError for blocks of less than one token.

    >>> from apportion import Rollout, collate
    >>> from apportion.steps.splitters import every_token
    >>> steps = every_token(collate([Rollout(tokens=[0] * 4, action_mask=[True] * 4, group="g")]))
    >>> block_sums(torch.tensor([[0.5, 0.25, 1.0, 2.0]]), steps, size=3)
    tensor([[0.0000, 0.0000, 1.7500, 2.0000]])
    """
    sampled, block, paid_at = _blocks(steps, size)
    return _pay(_sums(scores[sampled], block, len(paid_at)), paid_at, steps)


def block_means(scores: Float[Tensor, "B T"], steps: StepMap, *, size: int = 200) -> Float[Tensor, "N K"]:
    """As `block_sums`, but each block is paid the mean of its scores: a number of the size of one judgement.

    Law: a rollout's row sums to the means of its blocks. Identity: size 1 is `StepMap.sum`; of full blocks,
    `block_sums` divided by the size.

    >>> from apportion import Rollout, collate
    >>> from apportion.steps.splitters import every_token
    >>> steps = every_token(collate([Rollout(tokens=[0] * 4, action_mask=[True] * 4, group="g")]))
    >>> block_means(torch.tensor([[0.5, 0.25, 0.75, 2.0]]), steps, size=3)
    tensor([[0.0000, 0.0000, 0.5000, 2.0000]])
    """
    sampled, block, paid_at = _blocks(steps, size)
    lengths = torch.bincount(block, minlength=len(paid_at))
    return _pay(_sums(scores[sampled], block, len(paid_at)) / lengths, paid_at, steps)


def key_steps_only(process: Float[Tensor, "N K"], mask: Bool[Tensor, "N K"], key: Bool[Tensor, "N K"]) -> Gated:
    """Let only key steps keep their process reward; the others have the outcome alone to go by.

    kept[k] = process[k] where `key`, else 0; dropped[k] = process[k] - kept[k]. Nothing is made up for what was
    dropped, and the outcome stays where it was paid, at the last step. `kept` is the part of the reward; `dropped` is
    no part of it and is there to be logged.
    Law: kept + dropped = process. Identity: all steps key, nothing dropped.

    >>> key_steps_only(torch.tensor([[0.5, 0.25]]), torch.tensor([[True, True]]), torch.tensor([[False, True]]))
    Gated(kept=tensor([[0.0000, 0.2500]]), dropped=tensor([[0.5000, 0.0000]]))
    """
    return Gated(torch.where(mask & key, process, 0), torch.where(mask & ~key, process, 0))


def kl_penalty(
    logprobs: Float[Tensor, "B T"], ref_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, coef: float
) -> Float[Tensor, "B T"]:
    """Compute penalty[t] = -coef * k1[t], k1[t] = logprobs[t] - ref_logprobs[t], at sampled tokens.

    A constant: no gradient runs through it. Only k1 is here. Its expected gradient is 0, so that to treat it as a
    constant loses nothing, and the policy gradient of this reward is that of the reverse KL(policy || reference). The
    expected gradient of k2 and k3 is not 0 and would be left out: in the reward they give a wrong one, though k3 has
    the right mean. For a KL in the loss see `losses.kl_k2` and `losses.kl_k3`.
    Law: a rollout's tokens sum to -coef * log(policy / reference) of its sampled tokens. Identity: -coef times
    `losses.kl_k1`. Source: arXiv:2506.09477.

    Raises InputError for a coefficient that is not finite or below 0.

    >>> kl_penalty(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-1.5, -1.0]]), torch.tensor([[True, False]]), coef=0.5)
    tensor([[-0.2500,  0.0000]])
    """
    refuse_outside("coef", coef, 0.0)
    return coef * (torch.where(mask, ref_logprobs, 0) - torch.where(mask, logprobs, 0)).detach()


def entropy_reward(entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, coef: float) -> Float[Tensor, "B T"]:
    """Compute reward[t] = coef * entropy[t] at sampled tokens; entropy[t] is of the distribution t was drawn from.

    A constant: no gradient runs through it. It pays for arriving where much is open, so it bears on the tokens before
    t; at t itself `losses.entropy_bonus` moves the policy.
    Law: linear in the coefficient; with 0 it is 0.

    Raises InputError for a coefficient that is not finite or below 0.

    >>> entropy_reward(torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]), coef=0.5)
    tensor([[0.2500, 0.0000]])
    """
    refuse_outside("coef", coef, 0.0)
    return coef * torch.where(mask, entropy, 0).detach()


def _blocks(steps: StepMap, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """True at sampled tokens; the block of each, numbered through the batch; the cell where each block ends."""
    refuse_outside("size", size, 1.0)
    cell = steps.cell
    sampled = cell >= 0
    cells = cell[sampled]
    owner = cells // steps.width
    tokens = torch.bincount(owner, minlength=len(steps.counts))
    opens = (torch.arange(len(owner), device=owner.device) - (tokens.cumsum(0) - tokens)[owner]) % size == 0
    ends = torch.ones_like(opens)
    ends[:-1] = opens[1:]
    return sampled, opens.cumsum(0) - 1, cells[ends]


def _sums(scores: Tensor, block: Tensor, blocks: int) -> Tensor:
    return torch.zeros(blocks, dtype=scores.dtype, device=scores.device).index_add(0, block, scores)


def _pay(blocks: Tensor, paid_at: Tensor, steps: StepMap) -> Tensor:
    return _sums(blocks, paid_at, len(steps.counts) * steps.width).view(-1, steps.width)
