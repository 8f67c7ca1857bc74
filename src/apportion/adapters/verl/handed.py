"""What the trainer knows of a batch and verl does not pass on to an estimator: token ids, values, the mask as sampled.

The trainer holds it out while verl computes advantages; an estimator that finds it there takes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.ledger import Ledger
from apportion.rollouts.scores import Row as Score

FIELDS = ["response_mask", "rm_scores", "values", "prompts", "responses", "rollout_log_probs", "extra_fields"]
"""What is read from the queue of the v1 trainer; a field that a run does not have is left out there."""


@dataclass(eq=False)
class Handed:
    """A batch of verl on its own grids: prompts [B, P] end at the last column, responses [B, R] begin at the first.

    prompt_tokens, response_tokens: True where a token is. mask: sampled by the policy, before any rejection.
    scores: as the reward manager gave them. keys: `PROMPT_SESSION_OUTPUT` of each row.
    padding: rows that verl added to fill its mini-batches. tokenizer: None = no text is asked for.
    ledger: what an estimator made of it, once it has.
    """

    prompts: Int[Tensor, "B P"]
    responses: Int[Tensor, "B R"]
    prompt_tokens: Bool[Tensor, "B P"]
    response_tokens: Bool[Tensor, "B R"]
    mask: Bool[Tensor, "B R"]
    scores: Float[Tensor, "B R"]
    keys: Sequence[str]
    padding: Sequence[bool]
    values: Float[Tensor, "B R"] | None = None
    logprobs: Float[Tensor, "B R"] | None = None
    outcomes: Sequence[float | None] = ()
    step_rewards: Sequence[Score] = ()
    step_values: Sequence[Score] = ()
    tokenizer: Any = None
    wants_text: bool = False
    ledger: Ledger | None = None


_HELD: ContextVar[Handed | None] = ContextVar("apportion_handed", default=None)


@contextmanager
def holding(handed: Handed) -> Iterator[Handed]:
    """Hold a batch out to the estimators that are called meanwhile."""
    token = _HELD.set(handed)
    try:
        yield handed
    finally:
        _HELD.reset(token)


def held() -> Handed | None:
    """The batch that a trainer holds out; None where verl's own trainer runs."""
    return _HELD.get()


def handed_of(data: Any, keys: Sequence[str], tags: Sequence[Mapping[str, Any]]) -> Handed:
    """Lay out the columns that came from the queue: ragged tensors, and what the reward function said of each row."""
    mask, responses, prompts = data["response_mask"], data["responses"], data["prompts"]
    answers, tokens = padded(responses)
    ids, is_prompt = padded(prompts)
    said = [_said(fields) for fields in (data["extra_fields"] if "extra_fields" in data else [None] * len(keys))]
    return Handed(
        prompts=_to_the_right(ids, is_prompt),
        responses=answers,
        prompt_tokens=_to_the_right(is_prompt, is_prompt),
        response_tokens=tokens,
        mask=padded(mask)[0].bool(),
        scores=padded(data["rm_scores"])[0],
        keys=list(keys),
        padding=[bool(tag.get("is_padding", False)) for tag in tags],
        values=padded(data["values"])[0] if "values" in data else None,
        logprobs=padded(data["rollout_log_probs"])[0] if "rollout_log_probs" in data else None,
        outcomes=[info.get("apportion_outcome") for info in said],
        step_rewards=[_scores(info, "step_rewards") for info in said],
        step_values=[_scores(info, "step_values") for info in said],
    )


def _said(fields: Any) -> Mapping[str, Any]:
    info = fields.get("reward_extra_info") if isinstance(fields, Mapping) else None
    return info if isinstance(info, Mapping) else {}


def _scores(info: Mapping[str, Any], name: str) -> Score:
    """Scores of steps, which `rewards` writes as text: verl averages whatever else it finds there."""
    written = info.get(f"apportion_{name}")
    if not written:
        return None
    entries = json.loads(written)
    if not isinstance(entries, list):
        raise InputError(f"apportion_{name} must be a list of numbers written as text, got {written[:60]}")
    return tuple(float(entry) for entry in entries)


def padded(column: Any) -> tuple[Tensor, Tensor]:
    """A column of verl's queue, ragged or not, padded on the right with 0; and True where an entry is."""
    grid = column.to_padded_tensor(padding=0) if column.is_nested else column
    if not column.is_nested:
        return grid, torch.ones_like(grid, dtype=torch.bool)
    lengths = column.offsets().diff()
    return grid, torch.arange(grid.shape[1], device=grid.device) < lengths.unsqueeze(1)


def _to_the_right(grid: Tensor, tokens: Tensor) -> Tensor:
    """Shift every row so that its last token stands in the last column."""
    width = grid.shape[1]
    shift = width - tokens.sum(1, keepdim=True)
    source = torch.arange(width, device=grid.device) - shift
    moved = grid.gather(1, source.clamp(min=0))
    return torch.where(source >= 0, moved, torch.zeros_like(moved))
