"""At which steps a prefix is valued by samples of its own, and what the steps between take.

A choice is asked again and again, each time with what is known by then, until it wants nothing more. All grids are
[N, K + 1]: before each step, and after the last, where the score of the answer is the value and known from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from apportion.errors import InputError, did_you_mean

Choose = Callable[[Float[Tensor, "N L"], Bool[Tensor, "N L"]], Bool[Tensor, "N L"]]
"""(values, NaN where not known yet; where there is a boundary) -> the boundaries wanted, known or not."""

Fill = Callable[[Float[Tensor, "N L"]], Float[Tensor, "N L"]]
"""Values with NaN where not known -> none NaN, but for rows of which nothing is known."""


@dataclass(frozen=True)
class Boundaries:
    """Which boundaries are sampled, and how the rest is filled."""

    choose: Choose
    fill: Fill


def reuse(values: Float[Tensor, "N L"]) -> Float[Tensor, "N L"]:
    """Take the nearest known value before; where there is none, the next.

    >>> reuse(torch.tensor([[0.5, float("nan"), float("nan"), 1.0]]))
    tensor([[0.5000, 0.5000, 0.5000, 1.0000]])
    """
    before, after = _nearest(values)
    return values.gather(1, torch.where(before >= 0, before, after).clamp(max=values.shape[1] - 1))


def interpolate(values: Float[Tensor, "N L"]) -> Float[Tensor, "N L"]:
    """Go evenly from the nearest known value before to the next one; beyond the first or last, stay.

    >>> interpolate(torch.tensor([[0.5, float("nan"), 1.0]]))
    tensor([[0.5000, 0.7500, 1.0000]])
    """
    before, after = _nearest(values)
    last = values.shape[1] - 1
    start = torch.where(before >= 0, before, after).clamp(max=last)
    stop = torch.where(after <= last, after, before).clamp(min=0)
    here = torch.arange(last + 1, device=values.device)
    share = (here - start) / (stop - start).clamp(min=1)
    low, high = values.gather(1, start), values.gather(1, stop)
    return low + share.to(values.dtype) * (high - low)


def every() -> Boundaries:
    """Before every step."""
    return Boundaries(lambda values, there: there, reuse)


def first(count: int) -> Boundaries:
    """Before the first `count` steps; later ones take the last of these values.

    Raises InputError unless count >= 1.
    """
    _refuse_few("count", count)
    return Boundaries(lambda values, there: there & (_columns(there) < count), reuse)


def every_nth(n: int) -> Boundaries:
    """Before every n-th step, from the first; evenly between. Raises InputError unless n >= 1."""
    _refuse_few("n", n)
    return Boundaries(lambda values, there: there & (_columns(there) % n == 0), interpolate)


def refine(gap: float = 0.25) -> Boundaries:
    """Before the first step, then halfway between any two known neighbours whose values differ by more than `gap`.

    So samples go where an answer was won or lost; evenly between. Raises InputError unless gap >= 0.
    """
    if not gap >= 0:
        raise InputError(f"a gap between values is at least 0, {gap} was asked for")

    def choose(values: Float[Tensor, "N L"], there: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L"]:
        before, after = _nearest(values)
        middle = there & values.isnan() & (before >= 0) & (_columns(there) == (before + after + 1) // 2)
        low, high = (values.gather(1, place.clamp(0, values.shape[1] - 1)) for place in (before, after))
        return (there & (_columns(there) == 0)) | (middle & ((high - low).abs() > gap))

    return Boundaries(choose, interpolate)


def first_failure(least: float = 0.0) -> Boundaries:
    """Halve towards the first step behind which the value is at most `least`; the rest as `reuse` has it.

    Answers whose score is above `least` are not searched. About log2(K) boundaries an answer. Source: the binary search
    of OmegaPRM, arXiv:2406.06592.
    """

    def choose(values: Float[Tensor, "N L"], there: Bool[Tensor, "N L"]) -> Bool[Tensor, "N L"]:
        here, count = _columns(there), there.sum(1, keepdim=True)
        lost = (values <= least) & (here <= count)
        stop = torch.where(lost, here, here.shape[1]).amin(1, keepdim=True)
        alive = torch.where((values > least) & (here < stop), here, -1).amax(1, keepdim=True)
        middle = (here == (alive + stop + 1) // 2) & (here < stop) & (alive >= 0)
        return there & ((here == 0) | (middle & (stop <= count)))

    return Boundaries(choose, reuse)


PLAIN: dict[str, Callable[[], Boundaries]] = {"every": every, "refine": refine, "first_failure": first_failure}
COUNTED: dict[str, Callable[[int], Boundaries]] = {"first": first, "nth": every_nth}
NAMES = ("every", "first:M", "nth:N", "refine", "refine:GAP", "first_failure")


def by_name(name: str) -> Boundaries:
    """Make one of `NAMES`; any other raises InputError with the nearest."""
    kind, colon, argument = name.partition(":")
    if not colon and kind in PLAIN:
        return PLAIN[kind]()
    if kind in COUNTED and argument.isdecimal():
        return COUNTED[kind](int(argument))
    if kind == "refine" and _is_number(argument):
        return refine(float(argument))
    raise InputError(f"there are no boundaries {name!r}{did_you_mean(name, NAMES)}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_few(name: str, count: int) -> None:
    if count < 1:
        raise InputError(f"{name} of boundaries must be at least 1, {count} was asked for")


def _columns(there: Bool[Tensor, "N L"]) -> Tensor:
    return torch.arange(there.shape[1], device=there.device).expand(there.shape)


def _nearest(values: Float[Tensor, "N L"]) -> tuple[Tensor, Tensor]:
    """For each column the nearest known one up to it (-1: none) and from it on (L: none)."""
    known, width = ~values.isnan(), values.shape[1]
    here = _columns(known)
    before = torch.where(known, here, -1).cummax(1).values
    after = torch.where(known, here, width).flip(1).cummin(1).values.flip(1)
    return before, after
