"""How long steps are: cut those that are too long, and report on all of them.

8 to 20 tokens a step is the healthy range. Shorter steps make noisy values and many of them; longer ones fall back
towards one number for the whole answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts
from apportion.steps.grid import StepMap, number_steps_at
from apportion.steps.tokens import Splitter, numbered, place_of

SHORT, LONG, TOO_LONG = 8, 20, 30
"""A healthy step has SHORT to LONG tokens; one of more than TOO_LONG should be cut."""

BINS = (1, 2, SHORT, LONG + 1, TOO_LONG + 1, 61, 201)
"""Where the bins of the histogram begin; the last has no end."""


def at_most(splitter: Splitter, tokens: int = TOO_LONG) -> Splitter:
    """Cut every step of more than `tokens` tokens into as few pieces as will do, of lengths that differ by at most 1.

    A step of L tokens becomes ceil(L / tokens) pieces; token p of it goes to piece floor(p * pieces / L). Shorter
    steps and all boundaries stay. Identity: at_most(splitter, 1) is `every_token`.
    Raises InputError for a limit below 1.
    """
    if tokens < 1:
        raise InputError(f"a step needs at least 1 token, at most {tokens} were asked for")

    def split(rollouts: Rollouts) -> StepMap:
        steps = splitter(rollouts)
        lengths = steps.lengths[steps.mask].long()
        pieces = (lengths + tokens - 1) // tokens
        step, piece = numbered(pieces)
        begins = lengths.cumsum(0) - lengths
        within = (piece * lengths[step] + pieces[step] - 1) // pieces[step]
        return number_steps_at(rollouts, place_of(rollouts.runs.of_actions, begins[step] + within))

    return split


@dataclass(frozen=True)
class StepReport:
    """How long the steps of a batch are.

    per_rollout: steps of a rollout, and lengths: tokens of a step; both as fewest, three quartiles, most.
    histogram: steps in each of `BINS`.
    short, long, too_long: share of the steps under 8, over 20 and over 30 tokens.
    in_long: share of the tokens that stand in steps over 20 tokens.
    """

    rollouts: int
    steps: int
    per_rollout: tuple[int, ...]
    lengths: tuple[int, ...]
    histogram: tuple[int, ...]
    short: float
    long: float
    too_long: float
    in_long: float

    @property
    def verdict(self) -> str:
        """`none`, `whole answers`, `every token`, `too coarse`, `too fine` or `healthy`.

        Too coarse: more than half of the tokens stand in steps over 20 tokens. Too fine: more than half of the steps
        have under 8. Whole answers and single tokens are chosen on purpose and neither.
        """
        if self.steps == 0:
            return "none"
        if self.steps == self.rollouts:
            return "whole answers"
        if self.lengths[-1] == 1:
            return "every token"
        if self.in_long > 0.5:
            return "too coarse"
        return "too fine" if self.short > 0.5 else "healthy"

    def __str__(self) -> str:
        if self.steps == 0:
            return "no step"
        tokens = "token" if self.lengths[-1] == 1 else "tokens"
        said = [f"{self.steps:,}; {_range('a rollout', self.per_rollout)}", _range(tokens, self.lengths)]
        if self.verdict not in ("whole answers", "every token"):
            said += [
                f"{self.short:.0%} under {SHORT}, {self.long:.0%} over {LONG}, {self.too_long:.0%} over {TOO_LONG}",
                *_bars(self.histogram),
            ]
        return "\n".join([*said, _SAYS[self.verdict]])


_SAYS = {
    "whole answers": "one step a rollout: chosen, or no boundary was found",
    "every token": "every token a step: chosen, so its length says nothing",
    "too coarse": f"too coarse: most tokens stand in steps over {LONG} tokens",
    "too fine": f"too fine: most steps have under {SHORT} tokens",
    "healthy": f"healthy: neither most steps under {SHORT} nor most tokens in steps over {LONG}",
}


def report(steps: StepMap) -> StepReport:
    """Count steps and their lengths. Rollouts without any sampled token have no step and are left out.

    >>> from apportion.rollouts import Rollout, collate
    >>> from apportion.steps.tokens import chunks
    >>> answer = collate([Rollout(tokens=range(20), action_mask=[True] * 20, group=0)])
    >>> report(chunks(10)(answer)).verdict
    'healthy'
    """
    tally = torch.bincount(steps.lengths[steps.mask].long())
    tokens = tally * torch.arange(len(tally), device=tally.device)
    count, counts = int(tally.sum()), steps.counts[steps.counts > 0]
    edges = torch.tensor(BINS, device=tally.device)
    bins = torch.bucketize(torch.arange(len(tally), device=tally.device), edges, right=True)
    histogram = torch.zeros(len(BINS) + 1, dtype=tally.dtype, device=tally.device).index_add(0, bins, tally)
    return StepReport(
        rollouts=len(counts),
        steps=count,
        per_rollout=_quartiles(torch.bincount(counts)),
        lengths=_quartiles(tally),
        histogram=tuple(histogram[1:].tolist()),
        short=_share(tally[:SHORT], tally),
        long=_share(tally[LONG + 1 :], tally),
        too_long=_share(tally[TOO_LONG + 1 :], tally),
        in_long=_share(tokens[LONG + 1 :], tokens),
    )


def _quartiles(tally: Int[Tensor, " M"]) -> tuple[int, ...]:
    """Least, three quartiles and largest of numbers of which `tally` tells how often each comes."""
    count = int(tally.sum())
    ranks = [max(1, -(-count * quarter // 4)) for quarter in range(5)]
    return tuple(torch.searchsorted(tally.cumsum(0), torch.tensor(ranks, device=tally.device)).tolist())


def _share(part: Int[Tensor, " P"], all_: Int[Tensor, " M"]) -> float:
    return int(part.sum()) / max(1, int(all_.sum()))


def _range(unit: str, quartiles: tuple[int, ...]) -> str:
    least, _, median, _, most = quartiles
    return f"{least:,} {unit}" if least == most else f"{least:,} to {most:,} {unit}, median {median:,}"


def _bars(histogram: tuple[int, ...]) -> list[str]:
    """One line a bin, from the first that holds a step to the last."""
    names = [_name(begin, end) for begin, end in zip(BINS, (*BINS[1:], 0), strict=True)]
    held = [n for n, steps in enumerate(histogram) if steps]
    return [
        f"{names[n]:>7} {'#' * -(-20 * histogram[n] // max(histogram)):<20} {histogram[n]:,}"
        for n in range(held[0], held[-1] + 1)
    ]


def _name(begin: int, end: int) -> str:
    if end == 0:
        return f"{begin}-"
    return str(begin) if end == begin + 1 else f"{begin}-{end - 1}"
