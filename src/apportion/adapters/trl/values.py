"""Monte-Carlo values inside TRL: prefixes are continued as TRL generates, or by a server, and its rewards judge."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from apportion.errors import InputError
from apportion.policy.sampling import Sampling
from apportion.policy.server import Server
from apportion.policy.server_connection import Endpoint
from apportion.values import belief, boundaries
from apportion.values.belief import UNIT, Span, sample_mean
from apportion.values.engine import Drawn, Engine, Prefix, Wanted
from apportion.values.monte_carlo import MonteCarlo, Score
from apportion.values.rules import adaptive, uniform

Found = tuple[list[int], bool]
"""Tokens of a continuation, and whether it ended by itself."""

Asked = tuple[int, int]
"""Which of the wanted prefixes, and the number of its continuation."""

VLLM_LOTS = 16
"""Generation batches of continuations that vLLM is given at a time."""

Judge = Callable[[Sequence[tuple[Prefix, list[int]]]], list[float | None]]
"""Scores of continued prefixes, of all processes one after another. Every process asks about as many."""


@dataclass(frozen=True)
class Continuations:
    """How Monte-Carlo values are estimated: every prefix that ends before a step is continued and the answers judged.

    samples: of each prefix (6). error: continue instead until the standard error of a value is this.
    boundaries: before which steps (`apportion.values.boundaries.by_name`). budget: tokens generated at most for a
    batch. span: lowest and highest reward of an answer. server: who continues; None = TRL's own generation, with the
    policy of this step. A server's model is the one it was started with, unless you send it new weights.
    """

    samples: int | None = None
    error: float | None = None
    boundaries: str = "every"
    budget: int | None = None
    span: Span = UNIT
    server: Endpoint | None = None

    def __post_init__(self) -> None:
        for name in ("samples", "budget"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 1):
                raise InputError(f"Continuations({name}={number!r}): expected a whole number from 1 on, or None")
        if self.samples is not None and self.error is not None:
            raise InputError("Continuations: give `samples` or `error`; to an error, samples are as many as it takes")
        self.source(_Nobody(), lambda group, tokens: None)  # what is out of range is told before any training

    def source(self, engine: Engine, score: Score) -> MonteCarlo:
        """The value function. As in training: a fixed number as published; to an error, all samples are pooled."""
        return MonteCarlo(
            engine,
            score,
            rule=uniform(self.samples or 6) if self.error is None else adaptive(self.error),
            boundaries=boundaries.by_name(self.boundaries),
            span=self.span,
            budget=self.budget,
            pooled=self.error is not None,
            mean=sample_mean if self.error is None else belief.mean,
        )


class Shared:
    """An engine whose work is shared out over the processes of a trainer; each draws the same from it, in one order.

    Every process asks as often and about as many, since generation and rewards of TRL may wait for all of them; and
    about no more at a time than TRL samples (vLLM is given more: it makes its own lots).
    """

    def __init__(self, trainer: Any, inner: Engine, judge: Judge) -> None:
        self._trainer, self._inner, self._judge = trainer, inner, judge
        self._scores: list[float | None] = []
        self._told = 0

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    def limit(self, prefix: Prefix) -> int:
        return self._inner.limit(prefix)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        from accelerate.utils import gather_object

        asked = [(of, want.first + k) for of, want in enumerate(wanted) for k in range(want.count)]
        asked.sort(key=lambda one: len(wanted[one[0]].prefix.tokens))  # so that little of a lot is padding
        for lot in self._lots(asked):
            mine = self._share(lot)
            found = self._draw(wanted, mine)
            scores = self._judge([(wanted[of].prefix, found[of, number][0]) for of, number in mine])
            everything = gather_object([found[key] for key in mine])
            self._scores += scores[: len(lot)]
            for (of, number), (tokens, ended) in zip(lot, everything, strict=False):
                yield Drawn(of, number, tuple(tokens), ended, cost=len(tokens))

    def score(self, group: Hashable, tokens: Sequence[int]) -> float | None:
        """Of what was drawn, in its order."""
        self._told += 1
        return self._scores[self._told - 1]

    def _lots(self, asked: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
        args = self._trainer.args
        most = args.per_device_train_batch_size * args.steps_per_generation * self._trainer.accelerator.num_processes
        most *= VLLM_LOTS if self._trainer.use_vllm else 1
        for first in range(0, len(asked), most):
            yield asked[first : first + most]

    def _share(self, lot: Sequence[Asked]) -> list[Asked]:
        """What this process does of a lot; the last is done more than once where they do not come out even."""
        processes, rank = self._trainer.accelerator.num_processes, self._trainer.accelerator.process_index
        share = -(-len(lot) // processes)
        return [lot[min(i, len(lot) - 1)] for i in range(rank * share, (rank + 1) * share)]

    def _draw(self, wanted: Sequence[Wanted], mine: Sequence[Asked]) -> dict[Asked, Found]:
        own = list(dict.fromkeys(mine))
        single = [Wanted(wanted[of].prefix, number, 1) for of, number in own]
        return {own[drawn.of]: (list(drawn.tokens), drawn.ended) for drawn in self._inner.draw(single)}


class Generation:
    """TRL's own generation as an engine, with the policy and the sampling settings of the trainer."""

    def __init__(self, trainer: Any, ends: frozenset[int]) -> None:
        self._trainer, self._ends = trainer, ends

    @property
    def fingerprint(self) -> str:
        return f"TRL, step {self._trainer.state.global_step}"

    def limit(self, prefix: Prefix) -> int:
        return max(1, int(self._trainer.max_completion_length) - prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        asked = [(of, want.first + k) for of, want in enumerate(wanted) for k in range(want.count)]
        for (of, number), tokens in zip(asked, self._continued([wanted[of].prefix for of, _ in asked]), strict=True):
            kept = tokens[: self.limit(wanted[of].prefix)]
            yield Drawn(of, number, tuple(kept), bool(kept) and kept[-1] in self._ends, cost=len(kept))

    def _continued(self, prefixes: Sequence[Prefix]) -> list[list[int]]:
        with _at_most(self._trainer, max(map(self.limit, prefixes))):
            found, _ = self._trainer._generate_single_turn([list(prefix.tokens) for prefix in prefixes], None, {}, 1)
        return [list(tokens) for tokens in found]


def engine_of(trainer: Any, settings: Continuations, ends: frozenset[int]) -> Engine:
    """Who continues prefixes, as the settings say."""
    if settings.server is None:
        return Generation(trainer, ends)
    args = trainer.args
    sampling = Sampling(trainer.max_completion_length, temperature=args.temperature, top_p=args.top_p)
    return Server(settings.server, sampling, seed=trainer.state.global_step, tokenizer=trainer._tokenizer)


def refuse_what_cannot_be_continued(trainer: Any, settings: Continuations) -> None:
    """Raise InputError where a prefix alone does not say how the rest of an answer comes about, or by which policy."""
    if trainer.max_completion_length is None:
        raise InputError("values=Continuations(...) needs max_completion_length, so that what continues knows its end")
    args = trainer.args
    plain = args.top_k in (None, 0, -1) and not args.min_p and args.repetition_penalty == 1.0
    if settings.server is not None and not (plain and not args.generation_kwargs):
        raise InputError(
            "Continuations(server=...) samples with temperature and top_p alone; with top_k, min_p, repetition_penalty "
            "or generation_kwargs its values would be another policy's"
        )
    reasons = {
        "tools": bool(trainer.tools),
        "environment_factory": trainer.environment_factories is not None,
        "rollout_func": trainer.rollout_func is not None,
        "a model of text and images": trainer._is_vlm,
    }
    for what, is_so in reasons.items():
        if is_so:
            raise InputError(
                f"values=Continuations(...) continues answers from the middle as plain text, which does not go with "
                f"{what}; give a function for `values`"
            )


@contextmanager
def _at_most(trainer: Any, tokens: int) -> Iterator[None]:
    """Have TRL generate so many tokens at most."""
    if trainer.use_vllm:
        holder, name = trainer.vllm_generation, "max_completion_length"
    else:
        holder, name = trainer.generation_config, "max_new_tokens"
    before = getattr(holder, name)
    setattr(holder, name, tokens)
    try:
        yield
    finally:
        setattr(holder, name, before)


class _Nobody:
    """An engine that is never asked."""

    fingerprint = ""

    def limit(self, prefix: Prefix) -> int:
        return 1

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        return iter(())
