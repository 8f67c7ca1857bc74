"""Penalties for length, paid at the last step: too near the limit, and what a right answer costs.

Length is what the policy sampled: the tokens of the step map. Prompt, tool output and padding never count. A rollout
that was not scored gets 0, as from every reward.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.rewards.bounds import refuse_outside
from apportion.rewards.mixing import at_end
from apportion.steps.grid import StepMap


def soft_overlong(outcome: Float[Tensor, " N"], steps: StepMap, *, max_len: int, cache: int) -> Float[Tensor, "N K"]:
    """Punish answers that come within `cache` tokens of `max_len`, more the nearer they come.

    penalty = clip((max_len - cache - tokens) / cache, -1, 0).
    Law: from -1 to 0, never rising with length; 0 up to max_len - cache tokens, -1 from max_len on. Source: DAPO,
    arXiv:2503.14476, eq. 13.

    Raises InputError unless 1 <= cache <= max_len.

    >>> from apportion import Rollout, collate
    >>> from apportion.steps.splitters import whole
    >>> batch = collate([Rollout(tokens=[0] * 4, action_mask=[False, True, True, True], group="g", outcome=1.0)])
    >>> soft_overlong(batch.outcome, whole(batch), max_len=4, cache=2)
    tensor([[-0.5000]])
    """
    if not 1 <= cache <= max_len:
        raise InputError(
            f"cache is the number of tokens before max_len over which the penalty grows, from 1 to max_len; "
            f"cache {cache} and max_len {max_len} came"
        )
    penalty = ((max_len - cache - _tokens(outcome, steps)) / cache).clamp(-1, 0)
    return at_end(torch.where(outcome.isnan(), outcome, penalty), steps)


def length_cost(
    outcome: Float[Tensor, " N"], steps: StepMap, *, coef: float, max_len: int, wrong_up_to: float = 0.0
) -> Float[Tensor, "N K"]:
    """Let a right answer cost up to `coef` for its length; a wrong one costs nothing, however long.

    cost = -coef * min(1, tokens / max_len) where outcome > wrong_up_to, else 0.
    Law: from -coef to 0, never rising with length. So with coef under the gap between right and wrong, the longest
    right answer is still worth more than a wrong one, and no wrong answer gains by being short.
    Source: the cost of right answers only, arXiv:2502.04463, which measures length against the group's other right
    answers; here it is against `max_len`, so that an answer's reward does not hang on its siblings'.

    Raises InputError for a coefficient that is not finite or below 0, or a max_len below 1.

    >>> from apportion import Rollout, collate
    >>> from apportion.steps.splitters import whole
    >>> batch = collate([Rollout([0, 0], [True, True], "g", outcome) for outcome in (1.0, 0.0)])
    >>> length_cost(batch.outcome, whole(batch), coef=0.5, max_len=4)
    tensor([[-0.2500],
            [ 0.0000]])
    """
    refuse_outside("coef", coef, 0.0)
    refuse_outside("max_len", max_len, 1.0)
    refuse_outside("wrong_up_to", wrong_up_to)
    cost = -coef * (_tokens(outcome, steps) / max_len).clamp(max=1)
    return at_end(torch.where(outcome > wrong_up_to, cost, 0), steps)


def _tokens(outcome: Tensor, steps: StepMap) -> Tensor:
    """Sampled tokens of each rollout."""
    owner = steps.cell[steps.cell >= 0] // steps.width
    return torch.bincount(owner, minlength=len(outcome)).to(outcome.dtype)
