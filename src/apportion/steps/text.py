"""Splitters that look at text. They use the character offsets of the sampled ids; nothing is tokenized again.

A token belongs to the step in which its last character stands, so a token that carries a separator ends the step. A
character that is spread over several tokens belongs to the last of them. Text is read from the first sampled
character of a rollout on; what the prompt holds is never a separator. A new turn starts a new step.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap, number_steps_at
from apportion.steps.sentence import STOP
from apportion.steps.tokens import Splitter, numbered, turn_starts

Keys = str | Collection[int]
"""Which tokens are key: a regular expression that they hold a character of, or their ids."""

BLOCK, STRIDES = 64, (32, 16, 8, 4, 2, 1)
"""Tokens that are looked at together when a cut is looked up, and the strides that reach each but the first of them."""

_NEW_LINE = re.compile(r"\n\s*+(?=\S)")


class _Answers(NamedTuple):
    """The answers, written one under another, and where their sampled tokens end.

    Each answer stands behind a newline, so that the end of one and the beginning of the next are never the same
    character. ends: of every token in the flattened token grid, in the text of its own rollout; never falling along
    the sampled tokens of one. shift: from there to a character's place in what is written.
    """

    texts: list[str]
    base: Int[Tensor, " N"]
    shift: Int[Tensor, " N"]
    ends: Int[Tensor, " M"]

    @property
    def written(self) -> str:
        return "".join("\n" + text for text in self.texts)


def lines(rollouts: Rollouts) -> StepMap:
    """A step is a line with its newline; blank lines belong to the line above (to the first, where none is above)."""
    answers = _answers(rollouts)
    return _cut(rollouts, answers, _line_starts(answers))


def sentences(rollouts: Rollouts) -> StepMap:
    """A step is a sentence with the blanks after it; a line ends one too.

    A full stop ends a sentence where a blank follows, `。` `！` `？` anywhere, and closing quotes and brackets go with
    them. Common abbreviations (e.g., Fig. 2, Dr.), decimals, addresses and the numbers of list items end none; dots
    or a quotation after which a small letter goes on do not either. A single initial (J. Smith) does: it looks like
    the end of "the answer is B."
    """
    answers = _answers(rollouts)
    stops = _numbers(found.end() for found in STOP.finditer(answers.written) if found.lastgroup)
    return _cut(rollouts, answers, torch.cat([_line_starts(answers), stops]))


def after(pattern: str) -> Splitter:
    """Cut after every match of a regular expression (`re.escape` a plain string such as `=`).

    Raises InputError for a pattern that does not compile, or rollouts without text.
    """
    compiled = _compiled(pattern)

    def split(rollouts: Rollouts) -> StepMap:
        answers = _answers(rollouts)
        return _cut(rollouts, answers, _numbers(end for _, end in _matches(answers, compiled)))

    return split


def key_tokens(keys: Keys = "=") -> Splitter:
    """Every key token is a step of its own, and so is every run of tokens between them.

    keys: a regular expression (a token is key if it holds a character of a match), or token ids.
    `key_steps` tells the key steps from the others.
    Raises InputError for a pattern that does not compile, or, with a pattern, for rollouts without text.
    """
    is_key = _finder(keys)

    def split(rollouts: Rollouts) -> StepMap:
        places = _sampled(rollouts)
        key = is_key(rollouts)
        opens = key.clone()
        opens[1:] |= key[:-1]
        return number_steps_at(rollouts, torch.cat([places[opens], turn_starts(rollouts)]))

    return split


def key_steps(rollouts: Rollouts, steps: StepMap, keys: Keys = "=") -> Bool[Tensor, "N K"]:
    """True where a step, however it was cut, holds a key token; `keys` as for `key_tokens`."""
    cells = steps.cell.flatten()[_sampled(rollouts)[_finder(keys)(rollouts)]]
    return torch.zeros_like(steps.mask).flatten().index_fill(0, cells, True).view_as(steps.mask)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"the splitter pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.match(""):
        raise InputError(f"the splitter pattern {pattern!r} matches where nothing stands; it must match some text")
    return compiled


def _answers(rollouts: Rollouts) -> _Answers:
    if rollouts.offsets is None or None in rollouts.texts:
        raise InputError(
            "this splitter cuts text, but the rollouts came without text and offsets; "
            "give `text`, or split by whole answer, every token, turns, chunks or a marker token"
        )
    spans = rollouts.offsets.flatten(0, 1)
    runs = rollouts.runs.of_actions
    opens = runs.take(runs.opens_rollout)
    first = torch.zeros_like(rollouts.groups).index_copy(0, opens.rollout, spans[opens.start, 0])
    texts = [(text or "")[at:] for text, at in zip(rollouts.texts, first.tolist(), strict=True)]
    sizes = torch.tensor([len(text) + 1 for text in texts], device=first.device)
    limit = sizes.cumsum(0)
    base = limit - sizes + 1
    shift = base - first
    ends = _rising(rollouts, spans[:, 1], shift)
    astray = runs.rollout[ends[runs.last] + shift[runs.rollout] > limit[runs.rollout]].tolist()
    if astray:
        raise InputError(f"rollout {rollouts.ids[astray[0]]}: the offsets of its tokens reach past the end of its text")
    return _Answers(texts, base, shift, ends)


def _rising(rollouts: Rollouts, ends: Int[Tensor, " M"], shift: Int[Tensor, " N"]) -> Int[Tensor, " M"]:
    """The ends as they are, or, where they fall along the sampled tokens of a rollout, the highest so far.

    They fall where a token without text was given no place in it, but (0, 0).
    """
    runs = rollouts.runs.of_actions
    falls = (ends[1:] < ends[:-1]) & rollouts.action_mask.flatten()[1:]
    falls = falls.index_fill(0, runs.start[runs.start > 0] - 1, False)
    last = ends[runs.last] + shift[runs.rollout]
    if not bool(falls.any()) and not bool((last[1:] < last[:-1]).any()):
        return ends
    shifts = rollouts.of_tokens(shift).flatten()
    return torch.where(rollouts.action_mask.flatten(), ends + shifts, 0).cummax(0).values - shifts


def _line_starts(answers: _Answers) -> Int[Tensor, " C"]:
    """The first character of every line with words in it, but for each answer's first."""
    found = _numbers(map(re.Match.end, _NEW_LINE.finditer(answers.written + "\n.")))
    first = torch.searchsorted(found, answers.base.cpu())
    return found[torch.ones_like(found, dtype=torch.bool).index_fill(0, first, False)]


def _matches(answers: _Answers, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    for base, text in zip(answers.base.tolist(), answers.texts, strict=True):
        for found in pattern.finditer(text):
            yield base + found.start(), base + found.end()


def _cut(rollouts: Rollouts, answers: _Answers, cuts: Int[Tensor, " C"]) -> StepMap:
    """Start a step with the first sampled token that ends past a cut, and with every turn.

    Cuts are looked up twice: among the ends of short blocks of tokens, then within their block.
    """
    runs = rollouts.runs.of_actions
    run, block = numbered((runs.length + BLOCK - 1) // BLOCK)
    low = runs.start[run] + BLOCK * block
    high = torch.minimum(low + BLOCK - 1, runs.last[run])
    shift = answers.shift[runs.rollout[run]]
    cuts = cuts.to(shift.device)
    found = torch.searchsorted(answers.ends[high] + shift, cuts, right=True)
    cuts, found = cuts[found < len(shift)], found[found < len(shift)]
    starts = _first_past(answers.ends, low[found], high[found], cuts - shift[found])
    return number_steps_at(rollouts, torch.cat([starts, turn_starts(rollouts)]))


def _first_past(
    ends: Int[Tensor, " M"], low: Int[Tensor, " C"], high: Int[Tensor, " C"], cuts: Int[Tensor, " C"]
) -> Int[Tensor, " C"]:
    """The first place from `low` to `high`, a block at most, whose end is past the cut, all cuts at once; `high` is."""
    for step in STRIDES:
        probe = torch.minimum(low + step - 1, high)
        low = low + step * (ends.index_select(0, probe) <= cuts)
    return low


def _finder(keys: Keys) -> Callable[[Rollouts], Bool[Tensor, " A"]]:
    """What tells which of the sampled tokens are key."""
    if isinstance(keys, str):
        compiled = _compiled(keys)
        return lambda rollouts: _holds_match(rollouts, compiled)
    ids = torch.tensor(list(keys), dtype=torch.int64)
    return lambda rollouts: torch.isin(rollouts.tokens.flatten()[_sampled(rollouts)], ids.to(rollouts.tokens.device))


def _holds_match(rollouts: Rollouts, pattern: re.Pattern[str]) -> Bool[Tensor, " A"]:
    """True for a token with a character of a match; a character that the next token holds too is the next one's."""
    answers, places = _answers(rollouts), _sampled(rollouts)
    assert rollouts.offsets is not None
    spans = rollouts.offsets.flatten(0, 1)[places] + rollouts.of_tokens(answers.shift).flatten()[places].unsqueeze(1)
    begins, ends = spans[:, 0].contiguous(), spans[:, 1].contiguous()
    shared = (begins[1:] < ends[:-1]) & (ends[:-1] <= ends[1:])
    ends[:-1] = torch.where(shared, begins[1:], ends[:-1])
    found = _numbers(edge for match in _matches(answers, pattern) for edge in match).to(ends.device)
    begun = torch.searchsorted(found[::2].contiguous(), ends)
    over = torch.searchsorted(found[1::2].contiguous(), begins, right=True)
    return (begins < ends) & (begun > over)


def _sampled(rollouts: Rollouts) -> Int[Tensor, " A"]:
    """Where the sampled tokens stand in the flattened token grid."""
    return rollouts.action_mask.flatten().nonzero().squeeze(1)


def _numbers(found: Iterable[int]) -> Int[Tensor, " C"]:
    numbers = array("q", found)
    return torch.frombuffer(numbers, dtype=torch.int64) if numbers else torch.zeros(0, dtype=torch.int64)
