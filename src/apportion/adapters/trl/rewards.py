"""Reward functions of TRL that may score an answer as a whole, step by step, or token by token.

TRL takes one number an answer of each function. A function here may also return a list for an answer, one number a
step or one a sampled token; TRL is given its sum, for its logs, and the list goes into the credit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from trl.trainer.utils import is_async_callable

from apportion.errors import InputError

Lists = list[tuple[float, ...] | None]
"""For each answer what a function gave its steps or tokens; None where it gave one number or none."""


def heard(function: Callable[..., Any], name: str, keep: Callable[[Lists], None]) -> Callable[..., Any]:
    """The reward function as TRL calls it: a number or None for each answer. keep: is given what it returned as lists.

    Raises InputError, when it is called, for a return that is no list of numbers, lists and Nones.
    """

    def taken(returned: Any) -> list[float | None]:
        rewards = _as_list(returned, f"the reward function {name!r} must return a list with an entry for each answer")
        entries = [_entry(reward, f"the reward function {name!r}, answer {n}") for n, reward in enumerate(rewards)]
        keep([entry if isinstance(entry, tuple) else None for entry in entries])
        return [sum(entry) if isinstance(entry, tuple) else entry for entry in entries]

    if is_async_callable(function):

        @wraps(function)
        async def later(**asked: Any) -> list[float | None]:
            return taken(await function(**asked))

        return later

    @wraps(function)
    def now(**asked: Any) -> list[float | None]:
        return taken(function(**asked))

    return now


def outcomes(
    rewards: Float[Tensor, "N F"], by_step: Sequence[Sequence[tuple[float, ...] | None]], weights: Float[Tensor, " F"]
) -> list[float | None]:
    """The weighted sum of what scored an answer as a whole; None where nothing scored it.

    rewards: as TRL gathered them, NaN = none, a list's sum where there was a list. by_step: the lists of each answer.
    An answer that was scored by steps alone has an outcome of 0: all that it earned is in its steps.
    """
    listed = torch.tensor([[found is not None for found in row] for row in by_step], dtype=torch.bool)
    whole = (rewards.cpu() * weights.cpu()).masked_fill(listed.view_as(rewards), torch.nan).nansum(1)
    scored = ~rewards.cpu().isnan().all(1)
    return [score if was else None for score, was in zip(whole.tolist(), scored.tolist(), strict=True)]


def step_rewards(
    by_step: Sequence[tuple[float, ...] | None], weights: Sequence[float], answer: str
) -> tuple[float, ...] | None:
    """The weighted sum of the lists that an answer was given; None where there is none.

    Raises InputError where two are not of one length.
    """
    given = [(found, weight) for found, weight in zip(by_step, weights, strict=True) if found is not None]
    if not given:
        return None
    lengths = {len(found) for found, _ in given}
    if len(lengths) > 1:
        raise InputError(
            f"{answer}: reward functions gave it lists of {', '.join(map(str, sorted(lengths)))} numbers, which cannot "
            "be added; let each return one a step, or each one a sampled token"
        )
    return tuple(sum(found[k] * weight for found, weight in given) for k in range(lengths.pop()))


def on_sampled(scores: tuple[float, ...] | None, sampled: Sequence[bool], answer: str) -> tuple[float, ...] | None:
    """Scores of a whole completion without the tokens that a tool wrote; others as they are.

    Raises InputError for a score other than 0 on a tool's token.
    """
    if scores is None or len(scores) != len(sampled) or all(sampled):
        return scores
    for t, (score, own) in enumerate(zip(scores, sampled, strict=True)):
        if score != 0 and not own:
            raise InputError(
                f"{answer}: a reward of {score:g} stands on token {t} of the completion, which a tool wrote; give it "
                "to the step that called the tool"
            )
    return tuple(score for score, own in zip(scores, sampled, strict=True) if own)


def _as_list(returned: Any, expected: str) -> list[Any]:
    if hasattr(returned, "tolist"):
        returned = returned.tolist()
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
        raise InputError(f"{expected}, it returned {type(returned).__name__}")
    return list(returned)


def _entry(reward: Any, place: str) -> float | tuple[float, ...] | None:
    """A number, a list, or None; NaN too is none, as in TRL."""
    if hasattr(reward, "tolist"):
        reward = reward.tolist()
    if isinstance(reward, list | tuple):
        return tuple(_finite(number, f"{place}, entry {k}") for k, number in enumerate(reward))
    return None if reward is None or reward != reward else _finite(reward, place)


def _finite(entry: Any, place: str) -> float:
    if hasattr(entry, "tolist"):
        entry = entry.tolist()
    if not isinstance(entry, Real) or not math.isfinite(entry):
        came = f"{entry:g}" if isinstance(entry, Real) else type(entry).__name__
        raise InputError(f"{place}: expected a finite number, a list of them or None, got {came}")
    return float(entry)
