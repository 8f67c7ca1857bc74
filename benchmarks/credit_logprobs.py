"""Log-probabilities of chosen tokens and their entropy against the full float32 log-softmax: time, memory, agreement.

python benchmarks/credit_logprobs.py logits|head|X19 full|ours quick|whole     # a child of the benchmark: bytes at most
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from credit_inputs import THREADS, seeded
from measure import Section, at_most, burst, figure, in_turns, no_slower, thousandths
from memory import available, peak, peak_in_child
from torch import Tensor

from apportion.logprobs import head_logprobs, selected_logprobs

WIDTH = 256  # of the last hidden layer
PIECE = 64  # rows that are checked at a time
FULL_GRIDS = 8  # float32 grids [tokens, words] that the full way needs, generously
SHARE, SLOWER, EQUAL = 0.1, 1.3, 1e-5
X19_BYTES = 49_152_000

Both = tuple[Tensor, Tensor]
Find = Callable[..., Both]
Found = tuple[Both, tuple[Tensor, ...]]


def full(logits: Tensor, ids: Tensor) -> Both:
    """The whole log-softmax, in float32 or better."""
    logprobs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return logprobs.gather(1, ids.unsqueeze(1)).squeeze(1), -(logprobs.exp() * logprobs).sum(-1)


def full_head(hidden: Tensor, weight: Tensor, ids: Tensor) -> Both:
    return full(hidden @ weight.T, ids)


@dataclass(frozen=True)
class Case:
    """Ours and the full way, from the same leaves: logits, or hidden states and the head's weight."""

    name: str
    ours: Find
    full: Find
    tokens: int
    words: int
    dtype: torch.dtype = torch.float32

    @property
    def grid(self) -> int:
        """Bytes of one float32 number for every token and word."""
        return self.tokens * self.words * 4

    def leaves(self, tokens: int, words: int) -> list[Tensor]:
        chance = seeded()
        if self.full is full:
            made = [torch.randn(tokens, words, generator=chance).mul_(2).to(self.dtype)]
        else:
            made = [torch.randn(size, WIDTH, generator=chance) for size in (tokens, words)]
            made[1].mul_(2 / WIDTH**0.5)
        return [leaf.requires_grad_() for leaf in made]

    def ids(self, tokens: int, words: int) -> Tensor:
        return torch.randint(0, words, (tokens,), generator=seeded())


def cases(quick: bool) -> dict[str, Case]:
    tokens, words, less = (64, 1000, 500) if quick else (4096, 128_000, 32_000)
    chunk = 16 if quick else 256
    return {
        "logits": Case("`selected_logprobs`", selected_logprobs, full, tokens, words),
        "head": Case("`head_logprobs`", head_logprobs, full_head, tokens, words),
        "X19": Case(
            f"`selected_logprobs`, bfloat16, chunk {chunk}",
            partial(selected_logprobs, chunk=chunk),
            full,
            tokens,
            less,
            torch.bfloat16,
        ),
    }


def both_ways(find: Find, leaves: list[Tensor], ids: Tensor) -> Found:
    """Forward and backward."""
    found = find(*leaves, ids)
    return found, torch.autograd.grad(found[0].sum() + found[1].sum(), leaves)


def logprobs_section(rounds: int, quick: bool) -> Section:
    section = Section(
        "E · Log-probabilities and entropy, forward and backward",
        f"Memory: at most beyond the arguments and their gradients. The head has {WIDTH} inputs. Off by: results, and "
        "gradients as a share of the largest, from the same in float64.",
        ("what", "tokens × words", "median ms", "least ms", "× full", "MB", "of float32 logits", "off by", "gradients"),
    )
    for key, case in cases(quick).items():
        if available() < FULL_GRIDS * case.grid:
            section.notes += f" {case.name} was left out, for want of {FULL_GRIDS * case.grid / 1e9:.0f} GB of memory."
            continue
        _measure(section, key, case, rounds, quick)
    return section


def _measure(section: Section, key: str, case: Case, rounds: int, quick: bool) -> None:
    ways = {f"full, for {case.name}": ("full", case.full), case.name: ("ours", case.ours)}
    sizes = (case.tokens, case.words)
    size = "quick" if quick else "whole"
    taken = {name: peak_in_child(__file__, key, which, size) for name, (which, _) in ways.items()}
    leaves, ids = case.leaves(*sizes), case.ids(*sizes)
    errors = dict(zip(ways, _errors(case, leaves, ids, [find for _, find in ways.values()]), strict=True))
    times = in_turns(
        {name: partial(burst, partial(both_ways, find, leaves, ids)) for name, (_, find) in ways.items()}, rounds
    )
    first = next(iter(ways))
    for name, found in times.items():
        memory = ["", ""] if (most := taken[name]) is None else [figure(most / 1e6), f"{most / case.grid:.1%}"]
        cells = [*thousandths(found), figure(found.median / times[first].median), *memory, *map(figure, errors[name])]
        section.rows.append([name, f"{case.tokens:,} × {case.words:,}", *cells])
    most = taken[case.name]
    if key == "X19":
        section.owed.append(at_most(f"bytes of {case.name}", most, X19_BYTES))
    else:
        share = None if most is None else most / case.grid
        section.owed.append(at_most(f"memory of {case.name} over float32 logits", share, SHARE))
    section.owed.append(no_slower(f"time of {case.name} over the full one", times[case.name], times[first], SLOWER))
    error, full = errors[case.name][0], errors[first][0]
    if case.full is full_head:  # products of float32: even the full one is off by more than that
        section.owed.append(at_most(f"largest error of {case.name} over that of the full one", error / full, 1))
    else:
        section.owed.append(at_most(f"largest error of {case.name}", error, EQUAL))


def _errors(case: Case, leaves: list[Tensor], ids: Tensor, finds: list[Find]) -> list[tuple[float, float]]:
    """The largest error of results, and of gradients as a share of the largest, against float64, piece by piece."""
    results = [both_ways(find, leaves, ids) for find in finds]
    off = [[0.0, 0.0] for _ in finds]
    largest = 0.0
    others = [leaf.detach().double().requires_grad_() for leaf in leaves[1:]]
    for start in range(0, len(ids), PIECE):
        rows = slice(start, start + PIECE)
        wide = leaves[0].detach()[rows].double().requires_grad_()
        exact = case.full(wide, *others, ids[rows])
        (exact[0].sum() + exact[1].sum()).backward()
        largest = max(largest, float(wide.grad.abs().max()))
        for worst, (found, gradients) in zip(off, results, strict=True):
            worst[0] = max(worst[0], *(_most(here[rows], there) for here, there in zip(found, exact, strict=True)))
            worst[1] = max(worst[1], _most(gradients[0][rows], wide.grad))
    errors = [(worst[0], worst[1] / largest) for worst in off]
    for number, other in enumerate(others, start=1):
        scale = float(other.grad.abs().max())
        shares = [_most(gradients[number], other.grad) / scale for _, gradients in results]
        errors = [(most, max(share, more)) for (most, share), more in zip(errors, shares, strict=True)]
    return errors


def _most(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().double() - exact.detach()).abs().max())


def main(key: str, which: str, size: str) -> None:
    torch.set_num_threads(THREADS)
    case = cases(size == "quick")[key]
    find, sizes = getattr(case, which), (case.tokens, case.words)
    both_ways(find, case.leaves(8, 1024), case.ids(8, 1024))  # what is loaded at the first call is none of theirs
    leaves, ids = case.leaves(*sizes), case.ids(*sizes)
    print(peak(partial(both_ways, find, leaves, ids)) - sum(leaf.nbytes for leaf in leaves))


if __name__ == "__main__":
    main(*sys.argv[1:])
