"""Which format a file of rollouts is in, and the rollouts in it.

| format | rows are | known by |
|---|---|---|
| `apportion` | rows of a rollout file | `response` |
| `trl` | completion logs of TRL | `step`, `prompt`, `completion` |
| `verl` | rollout dumps of verl | `input`, `output`, `score` |
| `prime_rl` | token exports of prime-rl | `token_ids`, `loss_mask`, `advantages` |
| `chat` | transcripts in OpenAI's messages | `messages`, or `traj`, or `prompt` and `completion` |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from apportion.errors import InputError, did_you_mean
from apportion.files.foreign import chat, prime_rl, trl, verl
from apportion.files.foreign.source import Source
from apportion.files.rows import rollout_of
from apportion.files.storage import Row, read_rows
from apportion.rollouts import Rollout, Rollouts, collate

Read = Callable[[Source], list[Rollout]]
Names = tuple[str, ...]


def load(path: str | Path, *, format: str | None = None) -> Rollouts:
    """Read rollouts from a .jsonl, .json or .parquet file; outcomes are kept in float64, as they were written.

    format: one of `FORMATS`, or `trl:NAME=WEIGHT,...` for the weights of a log's rewards. None = the first of them
    that the fields of the first row fit.
    Raises InputError naming the line, the field, what came and what was expected.
    Warns of what is dropped, and of what a file of others leaves open, such as which sum of rewards was taken.
    """
    read = None if format is None else _by_name(format)
    source = Source(str(path), list(read_rows(path)))
    rollouts = (read or _by_fields(*source.rows[0]))(source)
    missing = sum(rollout.logprobs is None for rollout in rollouts)
    if 0 < missing < len(rollouts):
        source.warn(
            f"{missing} of {len(rollouts)} rollouts have no log-probabilities, so those of the others are dropped"
        )
    longest = max(len(rollout.tokens) for rollout in rollouts)  # which shall not pad all others to its length
    return collate(rollouts, dtype=torch.float64, width=longest)


def _native(source: Source) -> list[Rollout]:
    return [rollout_of(row, place, source.words) for place, row in source.rows]


FORMATS: dict[str, tuple[Read, tuple[Names, ...]]] = {
    "apportion": (_native, (("response",),)),
    "trl": (trl.read, (trl.FIELDS,)),
    "verl": (verl.read, (verl.FIELDS,)),
    "prime_rl": (prime_rl.read, (prime_rl.FIELDS,)),
    "chat": (chat.read, chat.TRANSCRIPTS),
}
"""How each format is read, and the fields, one set of them or another, that a row of it has."""


def _by_name(said: str) -> Read:
    name, colon, argument = said.partition(":")
    if name == "trl" and colon:
        return partial(trl.read, weights=trl.weights_of(argument))
    if said not in FORMATS:
        raise InputError(f"there is no format {said!r}{did_you_mean(said, [*FORMATS, 'trl:NAME=WEIGHT'])}")
    return FORMATS[said][0]


def _by_fields(place: str, row: Row) -> Read:
    for read, marks in FORMATS.values():
        if any(set(names) <= row.keys() for names in marks):
            return read
    tried = "; ".join(f"{name} ({_said(marks)})" for name, (_, marks) in FORMATS.items())
    raise InputError(f"{place}: no format has the fields {', '.join(row) or 'of an empty row'}; tried {tried}")


def _said(marks: tuple[Names, ...]) -> str:
    return " or ".join(" + ".join(names) for names in marks)
