"""Commands that judge what somebody else computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from apportion.cli.console import console


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


def doctor(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run folder, TRL state or log, TensorBoard folder, W&B export, or verl console log."),
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="error, warning, note or a check: exit status 1 where it is found.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
) -> None:
    """Say what a training run suffers from, root causes first, and what to do about it."""
    from apportion.doctor import examine, readers, report

    if list_checks:
        report.print_checks(console)
        return
    path, failing = report.asked(run, fail_on or [])
    diagnosis = examine(readers.read(path))
    if as_json:
        print(report.as_json(path, diagnosis))
    else:
        report.print_diagnosis(path, diagnosis, console)
    if report.fails(diagnosis.findings, failing):
        raise typer.Exit(1)


def audit(
    data: Annotated[
        str, typer.Argument(help="`chain` (the embedded task), or JSONL of steps with the first wrong one marked.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(help="FORMULA[:NUMBER][@SCORES],...; the others are compared with the first. See docs/audit.md."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Model that scores the steps of a file.")] = None,
    scores: Annotated[str | None, typer.Option(help="Field of the step scores of a file.")] = None,
    write_scores: Annotated[
        Path | None, typer.Option(help="Write the file's answers with the likelihoods that --policy found.")
    ] = None,
    answers: Annotated[int | None, typer.Option(help="Of a file at most so many; of the embedded task 128.")] = None,
    out: Annotated[list[Path] | None, typer.Option(help="Write the plot (.svg), tables (.md) or all (.json).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    seed: Annotated[int, typer.Option(help="All chance follows from it.")] = 0,
) -> None:
    """Judge methods of credit where it is known which step lost the answer: table, plot and a plain verdict."""
    from apportion.audit import Data, report, usual_methods
    from apportion.audit.judge import judge

    for path in out or []:
        report.refuse_target(path)
    told = Console(stderr=True)

    def progress(said: str) -> None:
        if told.is_terminal:
            told.print(Text(said))

    subject = Data(data, policy, scores, answers, seed).subject(progress, write_scores)
    names = usual_methods(subject) if methods is None else [name.strip() for name in methods.split(",")]
    found = judge(subject, names, seed=seed, progress=progress)
    for path in out or []:
        report.write(found, path)
    if as_json:
        print(report.as_json(found), end="")
    else:
        report.show(found, console)
