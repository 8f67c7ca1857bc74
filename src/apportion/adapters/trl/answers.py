"""Answers as TRL generated them, each as a `Rollout`, and back from credit to TRL's grid of completions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError
from apportion.ledger import Ledger
from apportion.policy.text import Speller
from apportion.rollouts import Rollout, Rollouts
from apportion.steps.grid import StepMap


@dataclass(frozen=True)
class Generated:
    """What TRL generated for its prompts in this process: token ids of each answer, and what is known of them.

    sampled: 1 = the policy's, 0 = a tool's; None = all are the policy's. logprobs: the sampler's, None = not known.
    """

    prompts: Sequence[Sequence[int]]
    completions: Sequence[Sequence[int]]
    sampled: Sequence[Sequence[int]] | None
    logprobs: Sequence[Sequence[float | None]] | None

    def rollouts(self, speller: Speller, ends: frozenset[int], first: int, group_size: int) -> list[Rollout]:
        """Each as a rollout without a score. first: the number of the first among the answers of all processes."""
        return [self._rollout(n, speller, ends, first + n, group_size) for n in range(len(self.prompts))]

    def _rollout(self, n: int, speller: Speller, ends: frozenset[int], number: int, group_size: int) -> Rollout:
        prompt, completion = list(self.prompts[n]), list(self.completions[n])
        tokens = [*prompt, *completion]
        text, offsets = speller.spell(tokens)
        return Rollout(
            tokens=tokens,
            action_mask=[False] * len(prompt) + self.mask(n),
            group=number // group_size,
            ended=bool(completion) and completion[-1] in ends,
            id=str(number),
            text=text,
            logprobs=self._logprobs(n),
            offsets=offsets,
        )

    def mask(self, n: int) -> list[bool]:
        """Which tokens of completion n the policy sampled."""
        if self.sampled is None:
            return [True] * len(self.completions[n])
        return [bool(sampled) for sampled in self.sampled[n]]

    def _logprobs(self, n: int) -> list[float] | None:
        """Of prompt and answer; None where the sampler did not give them all."""
        if self.logprobs is None:
            return None
        known = [math.nan if found is None else found for found in self.logprobs[n]]
        whole = all(found == found for found, sampled in zip(known, self.mask(n), strict=True) if sampled)
        return [math.nan] * len(self.prompts[n]) + known if whole else None


def step_texts(rows: Sequence[Rollout], batch: Rollouts, steps: StepMap) -> list[list[str]]:
    """What each step of each rollout says, in order. batch: of the rows, which the steps were made of."""
    numbers = steps.step_of.flatten()
    found = []
    for n, (row, place) in enumerate(zip(rows, batch.places(), strict=True)):
        assert row.text is not None
        assert row.offsets is not None
        texts = [""] * int(steps.counts[n])
        for step, (start, end) in zip(numbers[place].tolist(), row.offsets, strict=True):
            if step >= 0:
                texts[step] += row.text[start:end]
        found.append(texts)
    return found


def on_completions(ledger: Ledger, rows: slice, prompts: Sequence[int], width: int) -> Float[Tensor, "B T"]:
    """The advantages of these rollouts on TRL's grid: right-padded completions of `width` tokens, prompts left out.

    prompts: lengths of their prompts.
    """
    grid = torch.zeros(len(prompts), width, dtype=torch.float32)
    advantages = ledger.advantage.flatten().float()
    for n, (place, length) in enumerate(zip(ledger.rollouts.places()[rows], prompts, strict=True)):
        own = advantages[place[length:]]
        grid[n, : len(own)] = own
    return grid


def ends_of(tokenizer: Any, eos: Sequence[int]) -> frozenset[int]:
    """The token ids that end an answer, as TRL tells whether one was cut off."""
    return frozenset(token for token in (*eos, tokenizer.pad_token_id) if token is not None)


def mean_advantages(ledger: Ledger) -> list[float]:
    """Of each rollout the mean over its sampled tokens; 0 where none was sampled."""
    rollouts = ledger.rollouts
    sums = torch.zeros(len(rollouts), dtype=ledger.advantage.dtype)
    sums.index_add_(0, rollouts.rollout_of[rollouts.action_mask], ledger.advantage[rollouts.action_mask])
    means: list[float] = (sums / rollouts.action_counts.clamp(min=1)).tolist()
    return means


def with_values(rows: Sequence[Rollout], given: Any, counts: Sequence[tuple[int, int]], *, ends: bool) -> list[Rollout]:
    """The rollouts with what a value function returned.

    counts: steps and sampled tokens of each. ends: one value more is wanted, of the state after the last token.
    Raises InputError for another count of values, or what is no number.
    """
    given = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(given, list | tuple) or len(given) != len(rows):
        came = f"{len(given)} entries" if isinstance(given, list | tuple) else type(given).__name__
        raise InputError(
            f"the value function must return a list with an entry for each of {len(rows)} answers, got {came}"
        )
    return [
        _with_values(row, values, expected, ends) for row, values, expected in zip(rows, given, counts, strict=True)
    ]


def _with_values(row: Rollout, given: Any, counts: tuple[int, int], ends: bool) -> Rollout:
    values = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(values, list | tuple) or len(values) not in (counts[0] + ends, counts[1] + ends):
        came = len(values) if isinstance(values, list | tuple) else type(values).__name__
        more = ", and one more for what is expected after the last token" if ends else ""
        raise InputError(
            f"the value function, answer {row.id}: expected {counts[0]} values, one before each step, or {counts[1]}, "
            f"one before each sampled token{more}; got {came}"
        )
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InputError(f"the value function, answer {row.id}: every value must be a number, got {values!r}") from None
    return replace(row, step_values=numbers[:-1], end_value=numbers[-1]) if ends else replace(row, step_values=numbers)


def completions(tokenizer: Any, prompts: Sequence[Any], made: Generated) -> list[Any]:
    """Answers as TRL hands them to reward functions: text, or where prompts are conversations a message."""
    ids = [list(tokens) for tokens in made.completions]
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    if isinstance(prompts[0], str):
        return list(texts)
    if getattr(tokenizer, "response_template", None) or getattr(tokenizer, "response_schema", None):
        from trl.chat_template_utils import parse_response

        pairs = zip(ids, made.prompts, strict=True)
        return [[parse_response(tokenizer, tokens, prefix=list(prompt))] for tokens, prompt in pairs]
    return [[{"role": "assistant", "content": text}] for text in texts]


def refuse_lists(by_step: Sequence[Any], names: Sequence[str]) -> None:
    """Raise InputError where a reward function gave lists: what steps earned before a prefix is no value of it."""
    for lists, name in zip(by_step, names, strict=True):
        if lists is not None and any(found is not None for found in lists):
            raise InputError(
                f"the reward function {name!r} scores steps, and values=Continuations(...) estimates the outcome "
                "alone; let it return one number, or give a function for `values`"
            )
