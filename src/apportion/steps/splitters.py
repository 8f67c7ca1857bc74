"""Splitters: where an answer is cut into steps. Each takes rollouts and gives a `StepMap`.

How fine the credit is, is the choice of a splitter and of nothing else. Cuts that look at text use the character
offsets of the sampled ids; nothing is tokenized again. A token belongs to the step in which its last character
stands, so a token that carries a separator ends the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap, number_steps

Splitter = Callable[[Rollouts], StepMap]


def whole(rollouts: Rollouts) -> StepMap:
    """The whole answer is one long step, over all turns."""
    return number_steps(rollouts, torch.zeros_like(rollouts.action_mask))


def every_token(rollouts: Rollouts) -> StepMap:
    """Every sampled token is a step of length one."""
    return number_steps(rollouts, rollouts.action_mask)


def lines(rollouts: Rollouts) -> StepMap:
    """A step is a line with its newline; blank lines belong to the line above (to the first, where none is above).

    A new turn starts a new step.
    """
    return after(r"(?<=\S)\s*\n\s*(?=\S)")(rollouts)


def after(pattern: str) -> Splitter:
    """Cut after every match of a regular expression (`re.escape` a plain string such as `=`), and between turns.

    Matches are looked for from the first sampled character on.

    Raises InputError for a pattern that does not compile, or rollouts without text.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"the splitter pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.match(""):
        raise InputError(f"the splitter pattern {pattern!r} matches where nothing stands; it must match some text")

    def split(rollouts: Rollouts) -> StepMap:
        return number_steps(rollouts, _new_turn(rollouts) | _past_a_match(rollouts, compiled))

    return split


def marker(token: int) -> Splitter:
    """Cut after every sampled token with this id (an explicit end-of-step token), and between turns."""

    def split(rollouts: Rollouts) -> StepMap:
        marked = _previous_action(rollouts, (rollouts.tokens == token).long()) == 1
        return number_steps(rollouts, _new_turn(rollouts) | marked)

    return split


def _past_a_match(rollouts: Rollouts, pattern: re.Pattern[str]) -> Bool[Tensor, "B T"]:
    if rollouts.offsets is None or None in rollouts.texts:
        raise InputError(
            "this splitter cuts text, but the rollouts came without text and offsets; "
            "give `text`, or split by whole answer, every token or a marker token"
        )
    ends = rollouts.offsets[..., 1].flatten()
    cuts_before = torch.zeros_like(ends)
    begins, sampled = rollouts.offsets[..., 0].flatten(), rollouts.action_mask.flatten()
    for text, place in zip(rollouts.texts, rollouts.places(), strict=True):
        first = begins[place][sampled[place]][:1].sum()  # 0 where nothing was sampled
        found = [match.end() for match in pattern.finditer((text or "")[int(first) :])]
        cuts = first + torch.tensor(found, dtype=ends.dtype, device=ends.device)
        cuts_before[place] = torch.searchsorted(cuts, ends[place])
    cuts_before = cuts_before.view_as(rollouts.tokens)
    return _previous_action(rollouts, cuts_before) != cuts_before


def _new_turn(rollouts: Rollouts) -> Bool[Tensor, "B T"]:
    return _previous_action(rollouts, rollouts.turns) != rollouts.turns


def _previous_action(rollouts: Rollouts, column: Tensor) -> Tensor:
    """At every sampled token, the entry of the sampled token before it (its own at the first)."""
    places = rollouts.action_mask.flatten().nonzero().squeeze(1)
    entries = column.flatten()[places]
    shifted = torch.cat([entries[:1], entries[:-1]])
    return column.flatten().index_copy(0, places, shifted).view_as(column)


BY_NAME: dict[str, Splitter] = {"whole": whole, "every_token": every_token, "lines": lines}
