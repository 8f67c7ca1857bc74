"""From tensors of verl to `Rollouts`, and credit back onto verl's grid.

verl's mask says which tokens of a response the policy sampled; what a tool said between them is 0. Its rollout
correction rewrites that mask before advantages are computed, so a reward may stand on a token that is no action any
more. Such a reward goes to the rollout's last action before it; none is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.given import moved_to_actions, rewards_of_tokens

Pay = Callable[[Rollouts, Tensor], Rollouts]


@dataclass(frozen=True, eq=False)
class Laid:
    """Rollouts, and where their token grid [b, P + R] belongs on verl's [B, R].

    rows: of verl's grid, in the order of the rollouts'. skipped: columns P of prompts. shape: of verl's grid.
    """

    rollouts: Rollouts
    rows: Int[Tensor, " b"]
    skipped: int
    shape: tuple[int, int]

    def back(self, grid: Tensor) -> Float[Tensor, "B R"]:
        """Put a token grid of the rollouts onto verl's; rows that hold no rollout get 0."""
        blank = torch.zeros(self.shape, dtype=grid.dtype, device=grid.device)
        return blank.index_copy(0, self.rows, grid[:, self.skipped :])


def laid_alone(
    rewards: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], groups: Sequence[Hashable], pay: Pay
) -> Laid | None:
    """Lay out all that an estimator of verl gets, a rollout a row. None = no row has an action, so there is no credit.

    A row without any action whose group has none either is padding, and left out. In a group that has some, all of its
    tokens were rejected: its reward counts for the others, as in verl's own GRPO, and it gets no credit itself.
    """
    if len(groups) != len(mask):
        raise InputError(f"index has {len(groups)} entries for {len(mask)} rows")
    voiced = mask.any(1)
    group = numbered(groups).to(mask.device)
    heard = torch.zeros(len(set(groups)), dtype=torch.bool, device=mask.device)
    heard[group[voiced]] = True
    rows = heard[group].nonzero().squeeze(1)
    if not len(rows):
        return None
    acted = mask[rows]
    acted[:, 0] |= ~voiced[rows]  # a stand-in that the loss does not count
    owner = torch.arange(len(rows), device=mask.device)
    kept = [groups[row] for row in rows.tolist()]
    rollouts = Rollouts(
        tokens=torch.zeros_like(acted, dtype=torch.int64),
        rollout_of=owner.unsqueeze(1).expand_as(acted).contiguous(),
        action_mask=acted,
        turns=turns_of(acted, owner),
        groups=numbered(kept).to(mask.device),
        outcome=torch.zeros(len(rows), dtype=rewards.dtype, device=mask.device),
        ended=torch.ones_like(owner, dtype=torch.bool),
        group_names=tuple(dict.fromkeys(kept)),
    )
    return Laid(pay(rollouts, rewards[rows]), rows, 0, (mask.shape[0], mask.shape[1]))


def paid_in_sum(rollouts: Rollouts, rewards: Float[Tensor, "b W"]) -> Rollouts:
    """The outcome of an answer is the sum of its rewards, wherever they stand. A reward of NaN = not scored."""
    owner = rollouts.rollout_of.amax(1).clamp(min=0)
    return replace(rollouts, outcome=torch.zeros_like(rollouts.outcome).index_add(0, owner, rewards.sum(1)))


def paid_by_token(rollouts: Rollouts, rewards: Float[Tensor, "b W"]) -> Rollouts:
    """The outcome of an answer is the reward of its last action; what earlier ones earned are step rewards.

    A reward on another token goes to the action before it. A reward of NaN = not scored. What a rollout without any
    action earned is its outcome, which has no vote.
    """
    total = paid_in_sum(rollouts, rewards).outcome
    silent = rollouts.action_counts == 0
    kept = torch.where(rollouts.of_tokens(silent | total.isnan()), 0, rewards)
    moved = moved_to_actions(rollouts, kept)
    last = rollouts.runs.of_actions.spans[1]
    ends = torch.zeros_like(moved, dtype=torch.bool).flatten().index_fill(0, last, True).view_as(moved)
    outcome = torch.where(silent, total, torch.zeros_like(total))
    outcome = outcome.index_copy(0, (~silent).nonzero().squeeze(1), moved.flatten()[last])
    outcome = torch.where(total.isnan(), total, outcome)
    before = torch.where(ends, 0, moved)
    steps = rewards_of_tokens(rollouts, before) if bool(before.any()) else None
    return replace(rollouts, outcome=outcome, step_rewards=steps)


def turns_of(mask: Bool[Tensor, "b W"], owner: Int[Tensor, " b"]) -> Int[Tensor, "b W"]:
    """Number the turns of each rollout from 0: a new one with every row, and wherever sampled and other tokens meet."""
    opens = torch.ones_like(mask)
    opens[:, 1:] = mask[:, 1:] != mask[:, :-1]
    count = opens.flatten().cumsum(0).view_as(opens)
    first = torch.searchsorted(owner.contiguous(), owner.contiguous())
    return count - count[first, :1]


def numbered(names: Sequence[Hashable]) -> Int[Tensor, " N"]:
    """The names as numbers from 0, in the order in which they come first."""
    index = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([index[name] for name in names])
