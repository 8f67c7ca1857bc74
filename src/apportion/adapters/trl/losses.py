"""What TRL's loss makes of credit, micro-batch by micro-batch, as columns that the linter checks.

The gradient of TRL's own loss by the log-probability of each token is taken as it flows; the loss of each token is
worked out beside it, so that the linter can say by which reduction they became TRL's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apportion.losses.policy import ppo_clip

REDUCTIONS = {"grpo": "sequence_mean", "bnpo": "token_mean", "dr_grpo": "fixed_divisor", "dapo": "token_mean"}
"""What each loss of TRL with clipped ratios is meant to be over the whole batch."""


@dataclass(frozen=True, eq=False)
class Part:
    """One micro-batch. columns: by their names for the linter, [B, T]. loss: as backward gets it, of this process."""

    columns: dict[str, Tensor]
    loss: float
    processes: int


def part_of(inputs: dict[str, Any], logprobs: Tensor, loss: Tensor, processes: int) -> Part:
    """Take down one micro-batch, before backward."""
    [grad] = torch.autograd.grad(loss, [logprobs], retain_graph=True)
    valid = inputs["completion_mask"].bool()
    mask = valid & inputs["tool_mask"].bool() if "tool_mask" in inputs else valid
    advantages = inputs["advantages"]
    old = inputs.get("old_per_token_logps")
    columns = {
        "action_mask": mask,
        "valid_mask": valid,
        "advantages": torch.where(mask, advantages.unsqueeze(1) if advantages.dim() == 1 else advantages, 0),
        "logprobs": logprobs.detach(),
        "old_logprobs": logprobs.detach() if old is None else old,
        "policy_loss_grad": grad,
    }
    return Part({name: column.cpu() for name, column in columns.items()}, float(loss.detach()), processes)


def loss_columns(parts: Sequence[Part], args: Any) -> dict[str, Any]:
    """The columns of the micro-batches of all processes that made one step of the optimizer."""
    width = max(part.columns["action_mask"].shape[1] for part in parts)

    def grid(name: str) -> Tensor:
        rows = (part.columns[name] for part in parts)
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) for row in rows])

    columns: dict[str, Any] = {name: grid(name) for name in parts[0].columns}
    if args.beta != 0:
        del columns["policy_loss_grad"]  # the KL's is in it too
    return columns | _reduction(columns, parts, args)


def _reduction(columns: dict[str, Any], parts: Sequence[Part], args: Any) -> dict[str, Any]:
    """Losses of tokens, and what became of them; nothing where TRL's loss is more than clipped ratios."""
    cut = args.loss_type == "dapo" and args.steps_per_generation != args.gradient_accumulation_steps
    plain = (
        args.loss_type in REDUCTIONS
        and not cut  # TRL divides by the mean count of the generation batch, of which a step has but a part
        and args.beta == 0
        and not args.use_vllm
        and not args.entropy_coef
        and not args.use_adaptive_entropy
        and args.top_entropy_quantile == 1
        and args.importance_sampling_level == "token"
        and args.delta is None
        and args.off_policy_mask_threshold is None
    )
    if not plain:
        return {}
    token_loss = ppo_clip(
        columns["logprobs"],
        columns["old_logprobs"],
        columns["advantages"],
        columns["action_mask"],
        clip_low=args.epsilon,
        clip_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
    )
    return {
        "token_loss": token_loss,
        "loss": sum(part.loss for part in parts) / parts[0].processes,
        "micro_batch": torch.cat([torch.full((len(part.columns["logprobs"]),), k) for k, part in enumerate(parts)]),
        "reduction": REDUCTIONS[args.loss_type],
        "divisor": float(len(token_loss) * (args.max_completion_length or 1)),
    }
