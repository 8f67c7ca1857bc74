"""The command line: every command is one call of the library. Bad input ends in one line and exit status 2."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from apportion import recipes
from apportion.errors import ApportionError

app = typer.Typer(
    help="Token-level credit in reinforcement learning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

WHAT, HOW, WHERE = "What is trained", "Every other setting: see `apportion config`", "Where the run is"
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help=f"One of {', '.join(recipes.BY_NAME)}.", rich_help_panel=WHAT)
]


def main() -> None:
    """Run the command line; what the user can mend is said in one line."""
    warnings.showwarning = _print_warning
    sys.path.insert(0, str(Path.cwd()))  # so that `module:function` finds the user's own modules
    try:
        app(standalone_mode=True)
    except (ApportionError, OSError) as error:
        print(f"apportion: {error}", file=sys.stderr)
        sys.exit(2)


def _print_warning(message: Warning | str, *about: Any, **more: Any) -> None:
    print(f"apportion: {message}", file=sys.stderr)


@app.command()
def train(
    recipe: RecipeName = None,
    model: Annotated[
        str | None, typer.Option(help="`embedded`, a Hugging Face folder, or a GGUF file.", rich_help_panel=WHAT)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="JSONL of prompts and answers (GSM8K's own format too).", rich_help_panel=WHAT)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of the policy.", rich_help_panel=WHAT)] = None,
    seed: Annotated[int | None, typer.Option(help="All chance in a run follows from it.", rich_help_panel=WHAT)] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.", rich_help_panel=HOW)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: KEY=VALUE, as in the file.", rich_help_panel=HOW)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run (default: a new one under runs/).", rich_help_panel=WHERE)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Folder of a run to take up where it stopped.", rich_help_panel=WHERE)
    ] = None,
) -> None:
    """Train a policy: sample, judge, apportion, update. With no argument: the embedded model and task."""
    flags = {"recipe": recipe, "model": model, "data": data, "steps": steps, "seed": seed}
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in flags.items() if value is not None
    }
    from apportion.train.display import closing_table
    from apportion.train.processes import joined, told
    from apportion.train.start import open_run, settings_of, train_run
    from apportion.view.report import write_report

    across = joined()
    run, resolved = told(lambda: open_run(settings_of(given, settings or [], config), out, resume), across)
    try:
        finished = train_run(run, resolved, console if across.rank == 0 else Console(quiet=True), across)
    except KeyboardInterrupt:
        console.print(Text(f"stopped; to go on: apportion train --resume {run.path}"), soft_wrap=True)
        raise typer.Exit(130) from None
    if across.rank == 0:
        write_report(run.path)
        console.print(closing_table(run))
        if not finished:
            console.print(Text(f"asked to stop; to go on: apportion train --resume {run.path}"), soft_wrap=True)


@app.command()
def config(
    recipe: Annotated[str, typer.Option(help=f"One of {', '.join(recipes.BY_NAME)}.")] = "grpo",
    model: Annotated[str | None, typer.Option(help="Defaults for this model: `embedded` has its own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of printing.")] = None,
) -> None:
    """Write every setting of `train` with its default and its meaning, as TOML: edit it, then `train --config`."""
    from apportion.files import write_atomically
    from apportion.train.config import resolve, to_toml

    text = to_toml(resolve({"recipe": recipe} | ({"model": model} if model else {})))
    if out is None:
        print(text, end="")
    else:
        write_atomically(out, text.encode())


@app.command()
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


@app.command()
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


@app.command()
def lint(
    file: Annotated[
        Path | None, typer.Argument(help="Tensors of any framework: .npz, .safetensors, .parquet or .jsonl.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="Discount, a sampled token.")] = None,
    lam: Annotated[float | None, typer.Option(help="Decay of GAE, a sampled token.")] = None,
    recipe: Annotated[str | None, typer.Option(help="gae, to_go, grpo, dr_grpo, rloo, reinforce.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="More than rounding allows, as for rounded text.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="NAME=COLUMN: what the file calls a column.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A check to leave out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
) -> None:
    """Prove or refute that credit was handled right. Exit status 1 when a check is broken."""
    from apportion.lint import report

    if list_checks:
        report.print_checks(console)
        return
    given = {"gamma": gamma, "lam": lam, "recipe": recipe, "tolerance": tolerance}
    path, renamed = report.asked(file, column or [])
    findings = report.without(report.lint_file(path, given, renamed), ignore or [])
    if as_json:
        print(report.as_json(path, findings))
    else:
        report.print_findings(path, findings, console)
    if report.any_broken(findings):
        raise typer.Exit(1)


@app.command()
def explain(
    out: Annotated[Path | None, typer.Option(help="Write the walk as an HTML page instead of printing it.")] = None,
) -> None:
    """Walk through one answer: policy, value, advantage, credit, every number worked out anew."""
    from apportion.explain import explain_example, explain_page
    from apportion.files import write_atomically

    if out is None:
        explain_example(console)
    else:
        write_atomically(out, explain_page().encode())
        console.print(Text(f"written: {out}"), soft_wrap=True)
