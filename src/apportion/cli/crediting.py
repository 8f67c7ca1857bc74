"""Commands that work out credit and values of rollouts that somebody sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from apportion import recipes
from apportion.cli.console import console


def credit(
    file: Annotated[Path, typer.Argument(help="Rollouts that somebody sampled: .jsonl, .json or .parquet.")],
    recipe: Annotated[str, typer.Option(help=f"One of {', '.join(recipes.BY_NAME)}.")],
    out: Annotated[Path, typer.Option(help="Where to write the rollouts with their credit.")],
    split: Annotated[
        str | None,
        typer.Option(
            help="Cut steps otherwise: whole, every_token, lines, sentences, turns, chunks[:TOKENS] (200), "
            "key_tokens[:REGEX] (=), after:REGEX, marker:ID."
        ),
    ] = None,
    most_step_tokens: Annotated[
        int | None,
        typer.Option(
            help="Cut every step of more tokens than this into equal pieces; 30 is a good limit. "
            "Off unless given: a recipe's steps stay as they were published."
        ),
    ] = None,
    min_spread: Annotated[
        float | None,
        typer.Option(help="Credit answers as a whole whose step values all lie within this; 0.05 is a good limit."),
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="Weigh step rewards and outcome: default, proof, sql, code, chat.")
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help="sum_then_normalise (default), or normalise_then_sum: each reward part by itself."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="What wrote the file: apportion, trl, verl, prime_rl or chat (default: seen by its fields); "
            "trl:NAME=WEIGHT,... weighs the rewards of a log."
        ),
    ] = None,
) -> None:
    """Work out the credit of every step and token of a file of rollouts. Needs no model."""
    from apportion.credit_file import credit_file, print_summary, recipe_of

    chosen = recipe_of(
        recipe, split=split, most_step_tokens=most_step_tokens, mix=mix, combine=combine, min_spread=min_spread
    )
    ledger = credit_file(file, chosen, out, format=format)
    print_summary(ledger, out, console)


def value(
    file: Annotated[Path, typer.Argument(help="Rollouts that somebody sampled, as token ids.")],
    policy: Annotated[str, typer.Option(help="`embedded`, a Hugging Face folder, or a GGUF file.")],
    out: Annotated[Path, typer.Option(help="Where to write the rollouts with their step values.")],
    server: Annotated[
        str | None, typer.Option(help="URL of a server that samples; --policy then is its tokenizer.")
    ] = None,
    server_model: Annotated[str | None, typer.Option(help="The name under which the server has the model.")] = None,
    engine: Annotated[str, typer.Option(help="process (here), or ray[:ACTORS] (on all machines of Ray).")] = "process",
    task: Annotated[str | None, typer.Option(help="chain: judge by the embedded task's rule.")] = None,
    checker: Annotated[
        str | None, typer.Option(help="Judge by reference answers: math_equal (default), exact or module:function.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="JSONL of prompts and answers (default: the field `answer` of every row of FILE)."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Continuations of every prefix (6).")] = None,
    error: Annotated[
        float | None, typer.Option(help="Instead: as many as bring the standard error down to this, say 0.16.")
    ] = None,
    boundaries: Annotated[
        str, typer.Option(help="Steps to sample before: every, first:M, nth:N, refine[:GAP] (0.25), first_failure.")
    ] = "every",
    budget: Annotated[int | None, typer.Option(help="Most tokens of all continuations together.")] = None,
    split: Annotated[str | None, typer.Option(help="Cut steps otherwise than by lines; as in `credit`.")] = None,
    most_step_tokens: Annotated[int | None, typer.Option(help="Cut longer steps; as in `credit`.")] = None,
    format: Annotated[str | None, typer.Option(help="What wrote the file; as in `credit`.")] = None,
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="The most probable mass that is sampled from.")] = 1.0,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Of an answer as a whole (default: as many as the longest in FILE has).")
    ] = None,
    at_once: Annotated[int, typer.Option(help="Continuations sampled side by side; fewer need less memory.")] = 64,
    same_policy: Annotated[
        bool,
        typer.Option(
            "--same-policy", help="This policy sampled FILE, in just this way: its answers count as samples too."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="All chance follows from it.")] = 0,
    store: Annotated[Path | None, typer.Option(help="Where continuations are kept (default: OUT.store).")] = None,
) -> None:
    """Work out the value before every step of a file of rollouts, by continuing the answer from there."""
    from apportion.value_file import Settings, closing_table, label

    settings = Settings(
        policy=policy,
        server=server,
        server_model=server_model,
        engine=engine,
        task=task,
        checker=checker,
        data=data,
        samples=samples,
        error=error,
        boundaries=boundaries,
        budget=budget,
        split=split,
        most_step_tokens=most_step_tokens,
        format=format,
        temperature=temperature,
        top_p=top_p,
        max_new_tokens=max_new_tokens,
        at_once=at_once,
        same_policy=same_policy,
        seed=seed,
        store=store,
    )
    try:
        labelled = label(file, out, settings, console)
    except KeyboardInterrupt:
        kept = settings.store_beside(out)
        console.print(Text(f"stopped; to go on: the same command (what was sampled is in {kept})"), soft_wrap=True)
        raise typer.Exit(130) from None
    console.print(closing_table(labelled))
