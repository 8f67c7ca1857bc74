"""Credit of every token straight from token grids, for those who have rewards and values a token and want no ledger."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from apportion import compiled, credit
from apportion.rollouts import Rollouts
from apportion.steps.splitters import every_token


def token_gae(
    rollouts: Rollouts,
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    *,
    gamma: float,
    lam: float,
) -> Float[Tensor, "B T"]:
    """Compute credit[t] = delta[t] + gamma * lam * credit[t'], t' being the rollout's next sampled token.

    delta[t] = rewards[t] + gamma * values[t'] - values[t]; behind the last sampled token both are 0. What stands on
    other tokens is not looked at, and they get 0.

    Law: as `credit.gae`. Identity: every token a step, `credit.gae`, and back to tokens. Source: arXiv:1506.02438,
    eq. 16. With numba on the CPU a single pass over the tokens, all rollouts side by side.

    >>> from apportion import Rollout, collate
    >>> batch = collate([Rollout([7, 8, 9], [True, False, True], "g")])
    >>> token_gae(batch, torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 9.0, 0.25]]), gamma=1.0, lam=0.5)
    tensor([[0.1250, 0.0000, 0.7500]])
    """
    if not compiled.ready(rewards, values):
        steps = every_token(rollouts)
        return steps.to_tokens(credit.gae(steps.first(rewards), steps.first(values), gamma=gamma, lam=lam))
    grids = rewards, values, rollouts.action_mask
    return compiled.credit_to_go(grids, rollouts.runs.of_actions.spans, gamma=gamma, decay=gamma * lam)
