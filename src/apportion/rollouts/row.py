"""One rollout by itself, in plain Python."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rollout:
    """One sampled answer with its prompt, as plain Python; `collate` makes a batch of them.

    `tokens`, `action_mask` and, where given, `turns`, `logprobs` and `offsets` have one entry a token of prompt and
    answer. `offsets` are (start, end) characters in `text`; a character of several tokens belongs to the last.
    `step_rewards` and `step_values` have one entry a step or one a sampled token. `end_value` is what was still
    expected when a rollout was cut off: the value of the state after its last token. `branched_at` tokens, from the
    first, stand in an earlier rollout of the group, of which this one is a branch; 0 = it is none.
    """

    tokens: Sequence[int]
    action_mask: Sequence[bool]
    group: Hashable
    outcome: float | None = None
    ended: bool = True
    id: str = ""
    text: str | None = None
    turns: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    offsets: Sequence[tuple[int, int]] | None = None
    step_rewards: tuple[float, ...] | None = None
    step_values: tuple[float, ...] | None = None
    end_value: float | None = None
    branched_at: int = 0
