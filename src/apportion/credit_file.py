"""Credit for rollouts that somebody else sampled: a file in, a file with credit out, and a summary."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion import files, recipes
from apportion.errors import InputError, did_you_mean
from apportion.ledger import Ledger, Recipe, apportion
from apportion.normalise import COMBINE, normalise_then_sum
from apportion.rewards.mixing import MIXES, Bootstrapped
from apportion.steps import splitters
from apportion.steps.sizes import at_most, report
from apportion.steps.splitters import Splitter
from apportion.values import baselines

OF_PATTERN: dict[str, Callable[[str], Splitter]] = {"after": splitters.after, "key_tokens": splitters.key_tokens}
OF_NUMBER: dict[str, Callable[[int], Splitter]] = {"chunks": splitters.chunks, "marker": splitters.marker}
ONE_VALUE = (baselines.zero, baselines.group_mean, baselines.leave_one_out)


def recipe_of(
    name: str,
    *,
    split: str | None = None,
    most_step_tokens: int | None = None,
    mix: str | None = None,
    combine: str | None = None,
    min_spread: float | None = None,
) -> Recipe:
    """A recipe by name, with another splitter, mix of rewards or way to combine their credits where one is named.

    most_step_tokens: steps of more tokens are cut into equal pieces; None = no step is.
    min_spread: rollouts whose step values lie within it are credited as a whole; None = none is.
    """
    recipe = replace(recipes.by_name(name), min_spread=min_spread)
    published = recipe.split
    if split is not None:
        recipe = replace(recipe, split=_splitter(split))
    if most_step_tokens is not None:
        recipe = replace(recipe, split=at_most(recipe.split, most_step_tokens))
    if recipe.value in ONE_VALUE and recipe.split not in (published, splitters.whole):
        warnings.warn(
            f"{name} has one value for a whole answer, so of several steps the last gets all its credit; "
            "a recipe with step values (vineppo) tells them apart",
            stacklevel=2,
        )
    if mix is not None:
        if mix not in MIXES:
            raise InputError(f"there is no mix {mix!r}{did_you_mean(mix, MIXES)}")
        own, mixed = recipe.reward, MIXES[mix]
        recipe = replace(recipe, reward=replace(own, reward=mixed) if isinstance(own, Bootstrapped) else mixed)
    if combine is not None:
        if combine not in COMBINE:
            raise InputError(f"there is no way to combine {combine!r}{did_you_mean(combine, COMBINE)}")
        if mix is not None and COMBINE[combine] is normalise_then_sum:
            raise InputError(
                "normalise_then_sum gives every part of the reward the same weight, so --mix has no effect"
            )
        recipe = replace(recipe, combine=COMBINE[combine])
    return recipe


def credit_file(source: Path, recipe: Recipe, target: Path, *, format: str | None = None) -> Ledger:
    """Read rollouts, apportion, write them back with their ledger. Nothing is written unless all went well.

    format: one of `files.FORMATS`; None = seen by the fields of the first row.
    Raises InputError for what the file or the recipe lacks, LawError if a law does not hold.
    """
    if target.exists() and target.samefile(source):
        raise InputError(f"{target}: is the file that is read; give another --out")
    ledger = apportion(files.load(source, format=format), recipe).require_laws()
    files.write_rows(target, ledger.rows())
    return ledger


def print_summary(ledger: Ledger, target: Path, console: Console) -> None:
    """What was in the file, how large the credit is, and how exactly the laws hold."""
    rollouts, votes = ledger.rollouts, ledger.rollouts.votes
    table = Table(title=Text(f"{ledger.recipe.name} credit: {target}"), show_header=False, title_justify="left")
    groups = len(set(rollouts.groups.tolist()))
    table.add_row("rollouts", f"{len(rollouts)} in {groups} groups; {len(rollouts) - int(votes.sum())} without credit")
    table.add_row("tokens", f"{int(ledger.mask.sum()):,} with credit of {int(rollouts.valid_mask.sum()):,}")
    sizes = report(ledger.steps)
    table.add_row("steps", f"{sizes.steps:,}" if sizes.verdict == "whole answers" else str(sizes))
    if bool(votes.any()):
        table.add_row("reward", f"mean {float(ledger.reward.sum(1)[votes].mean()):.4f}")
        table.add_row("advantage", f"mean |A| {float(ledger.advantage[ledger.mask].abs().mean()):.4f}")
    for found in ledger.check():
        verdict = "holds" if found.holds else "BROKEN"
        table.add_row(f"law: {found.law}", f"{verdict}, largest residual {found.worst:.1e}")
    console.print(table)


def _splitter(name: str) -> Splitter:
    kind, colon, argument = name.partition(":")
    if colon and kind in OF_PATTERN:
        return OF_PATTERN[kind](argument)
    if colon and kind in OF_NUMBER and argument.isdecimal() and int(argument) < 2**63:
        return OF_NUMBER[kind](int(argument))
    plain = {**splitters.BY_NAME, "chunks": splitters.chunks(), "key_tokens": splitters.key_tokens()}
    if name not in plain:
        known = [*plain, *(f"{kind}:REGEX" for kind in OF_PATTERN), *(f"{kind}:NUMBER" for kind in OF_NUMBER)]
        raise InputError(f"there is no splitter {name!r}{did_you_mean(name, known)}")
    return plain[name]
