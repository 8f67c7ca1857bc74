"""The straight line: rollouts, steps, judge, engine, store, values, file."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from apportion import files
from apportion.credit_file import recipe_of
from apportion.errors import InputError
from apportion.files import Row
from apportion.policy.causal import CausalPolicy
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps.grid import StepMap
from apportion.value_file.display import Display
from apportion.value_file.engines import engine_of, policy_of
from apportion.value_file.judge import Judge, judge_of, warn_of_another_scale
from apportion.value_file.meter import Meter
from apportion.value_file.settings import Settings
from apportion.value_file.tokenizer import Tokenizer
from apportion.values import boundaries
from apportion.values.monte_carlo import Estimates, MonteCarlo, prefixes_before_steps
from apportion.values.store import Stored


@dataclass(frozen=True)
class Work:
    """What is to be valued. policy: where it is this process that samples. max_new_tokens: of an answer as a whole."""

    rollouts: Rollouts
    steps: StepMap
    judge: Judge
    policy: CausalPolicy | None
    max_new_tokens: int


@dataclass(frozen=True)
class Labelled:
    """What was found, and what it cost."""

    work: Work
    found: Estimates
    meter: Meter
    target: Path
    store: Path


def label(source: Path, target: Path, settings: Settings, console: Console) -> Labelled:
    """Write the rollouts of `source` with a value before every step, its standard error and the samples behind it.

    Nothing is written to `target` unless all went well; what was sampled is in the store by then.
    Raises InputError for what the file, the settings or the engine lack.
    """
    _refuse_target(target, source)
    work, store = _read(source, settings), settings.store_beside(target)
    warn_of_another_scale(work.judge, work.rollouts)
    with (
        engine_of(settings, work.policy, work.judge.tokenizer, work.max_new_tokens) as engine,
        closing(Stored(engine, store)) as stored,
    ):
        meter = Meter(stored, settings.most_samples())
        found = _estimate(work, meter, settings, console)
    files.write_rows(target, _rows(work, found))
    return Labelled(work, found, meter, target, store)


def _read(source: Path, settings: Settings) -> Work:
    given = files.load(source, format=settings.format)
    policy = policy_of(settings)
    tokenizer = Tokenizer.load(settings.policy) if policy is None else Tokenizer(policy.tokenizer)
    rollouts = _spelled(given, tokenizer)
    steps = recipe_of("vineppo", split=settings.split, most_step_tokens=settings.most_step_tokens).split(rollouts)
    judge = judge_of(settings, source, rollouts, tokenizer)
    return Work(rollouts, steps, judge, policy, settings.max_new_tokens or int(rollouts.action_counts.max()))


def _estimate(work: Work, meter: Meter, settings: Settings, console: Console) -> Estimates:
    if work.policy is not None:
        for prefix in (prefix for row in prefixes_before_steps(work.rollouts, work.steps) for prefix in row):
            work.policy.refuse_long(len(prefix.tokens), meter.limit(prefix))
    values = MonteCarlo(
        meter,
        work.judge,
        settings.rule(),
        boundaries.by_name(settings.boundaries),
        budget=settings.budget,
        answers=settings.same_policy,
        mean=settings.mean(),
    )
    with Display(console, meter) as display:
        return values.estimate(work.rollouts, work.steps, display)


def _spelled(rollouts: Rollouts, tokenizer: Tokenizer) -> Rollouts:
    """The rollouts with text where the file has token ids alone."""
    rows = [_with_text(row, tokenizer) for row in rollouts.rows()]
    return collate(rows, dtype=torch.float64, width=max(len(row.tokens) for row in rows))


def _with_text(row: Rollout, tokenizer: Tokenizer) -> Rollout:
    """Raises InputError for what are no token ids of the policy."""
    strange = next((token for token in row.tokens if not 0 <= token < len(tokenizer)), None)
    if strange is not None and strange < 0:
        raise InputError(
            f"rollout {row.id} came as text, and a policy continues token ids; prompt and response must be such lists"
        )
    if strange is not None:
        raise InputError(
            f"rollout {row.id} holds the token id {strange}, and --policy has {len(tokenizer)} tokens; "
            "give the policy, or one with the tokenizer, that sampled it"
        )
    if row.text is not None and row.offsets is not None:
        return row
    text, offsets = tokenizer.spell(row.tokens)
    return replace(row, text=text, offsets=offsets)


def _rows(work: Work, found: Estimates) -> list[Row]:
    """A row a rollout; one without a vote has no values."""
    rows = []
    votes, counts = work.rollouts.votes.tolist(), work.steps.counts.tolist()
    for n, (rollout, vote, steps) in enumerate(zip(work.rollouts.rows(), votes, counts, strict=True)):
        row = files.row_of(replace(rollout, step_values=None))
        if vote:
            row["step_values"] = found.value[n, :steps].tolist()
            row["step_value_errors"] = [None if e != e else e for e in found.error[n, :steps].tolist()]
            row["step_value_counts"] = found.count[n, :steps].tolist()
        rows.append(row)
    return rows


def _refuse_target(target: Path, source: Path) -> None:
    """Say what is wrong with the target before anything is paid for."""
    if target.suffix not in (".jsonl", ".parquet"):
        raise InputError(f"{target}: the name must end in .jsonl or .parquet, which says what the file holds")
    if target.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError("Parquet files need pyarrow: pip install 'apportion[parquet]'")
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist")
    if target.exists() and target.samefile(source):
        raise InputError(f"{target}: is the file that is read; give another --out")
