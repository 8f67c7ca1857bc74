"""`apportion value` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion import cli, value_file
from apportion.cli import crediting
from apportion.policy.causal import CausalPolicy
from apportion.tasks.chain import Chain
from apportion.value_file import Settings
from apportion.values.store import Stored
from fake_server import Fake, serving

END = 1
WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
PAGE = Path(__file__).parents[2] / "docs" / "values.md"


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(crediting, "console", Console(width=80, force_terminal=False))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def source() -> str:
    """A right and a wrong answer to one chain."""
    policy = CausalPolicy.load("embedded")
    problem = Chain(steps=2, wording=0).held_out(1)[0]
    prompt = policy.encode(problem.prompt)
    rows = [
        {"group": problem.prompt, "prompt": prompt, "response": [*policy.encode(text), END], "outcome": outcome}
        for text, outcome in ((problem.answer, 1), (f"1{problem.answer}", 0))
    ]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "in.jsonl"


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["value", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_file_is_labelled_and_the_table_says_what_it_cost(source: str) -> None:
    status, said = call(source, "--policy", "embedded", "--task", "chain", "--samples", "3", "--out", "out.jsonl")

    assert status == 0
    assert "100%  1/1 prefixes" in said
    assert re.search(r"rollouts +│ 2 in 1 groups; 0 without outcome", said)
    assert re.search(r"continuations +│ 3; \d cut off for length", said)
    assert re.search(r"store +│ out.jsonl.store", said)
    right, wrong = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert right["step_values"] == wrong["step_values"]
    assert right["step_value_counts"] == [3]
    assert Path("out.jsonl.store").exists()


def test_every_option_reaches_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(value_file, "label", lambda *given: seen.extend(given))
    monkeypatch.setattr(value_file, "closing_table", lambda done: "")
    options = {
        "policy": "p",
        "engine": "ray:2",
        "split": "turns",
        "most_step_tokens": 5,
        "format": "chat",
        "checker": "exact",
        "data": Path("d.jsonl"),
        "error": 0.3,
        "boundaries": "refine",
        "budget": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_new_tokens": 8,
        "at_once": 9,
        "seed": 3,
        "store": Path("s"),
    }
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert call("in.jsonl", "--out", "o.jsonl", "--same-policy", *flags)[0] == 0
    assert seen[:3] == [Path("in.jsonl"), Path("o.jsonl"), Settings(**options, same_policy=True)]

    call("in.jsonl", "--out", "o.jsonl", "--policy", "p", "--server", "u", "--server-model", "m", "--task", "chain")
    call("in.jsonl", "--out", "o.jsonl", "--policy", "p", "--samples", "4")
    assert seen[6] == Settings("p", server="u", server_model="m", task="chain")
    assert seen[10] == Settings("p", samples=4)


def test_stopped_by_hand_it_says_how_to_go_on(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Stored._kept

    def stopped(self: Stored, *lot: Any) -> Any:
        kept(self, *lot)
        raise KeyboardInterrupt

    arguments = [source, "--policy", "embedded", "--task", "chain", "--samples", "3", "--out", "out.jsonl"]
    with monkeypatch.context() as patched:
        patched.setattr(Stored, "_kept", stopped)
        status, said = call(*arguments)

    assert status == 130
    assert said == "stopped; to go on: the same command (what was sampled is in out.jsonl.store)\n"
    assert not Path("out.jsonl").exists()
    assert "0 generated now" in call(*arguments)[1]


def test_a_server_may_sample(source: str) -> None:
    pytest.importorskip("openai")
    options = ["--task", "chain", "--samples", "3", "--max-new-tokens", "12", "--seed", "5"]
    with serving(Fake()) as fake:
        served = ["--policy", "embedded", "--server", fake.url, "--server-model", "tiny", "--out", "out.jsonl"]
        status, said = call(source, *served, *options)
        asked = list(fake.asked)
        again = call(source, *served, *options)[1]

    assert status == 0
    assert "3; " in said
    prompt = json.loads(Path("in.jsonl").read_text().splitlines()[0])["prompt"]
    assert {tuple(body["prompt"]) for body in asked} == {tuple(prompt)}
    assert sum(body["n"] for body in asked) == 3
    assert all(body["max_tokens"] == 12 for body in asked)
    assert fake.asked == asked, "the second time the store has all"
    assert "0 generated now" in again
    assert json.loads(Path("out.jsonl").read_text().splitlines()[0])["step_values"] == [0.0]


def masked(text: str) -> list[str]:
    """Its lines, with every number alike and no blanks or rules of the table: chance may differ by machine."""
    lines = (re.sub(r"[─┌┐└┘│\s]+", " ", re.sub(r"\d[\d,.]*", "0", line)).strip() for line in text.splitlines())
    return [line for line in lines if line]


def test_the_page_shows_what_its_commands_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crediting, "console", Console(width=80, force_terminal=False))
    page = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", page, re.DOTALL)
    for commands, said in shown:
        for command in commands.splitlines():
            monkeypatch.setattr("sys.argv", command.split())
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert ended.value.code == 0, command
            printed = capsys.readouterr().out
        if said:
            table = slice(masked(said).index("values: valued.jsonl"), None)
            lines = masked(printed)
            assert lines[lines.index("values: valued.jsonl") :] == masked(said)[table]
    assert [bool(said) for _, said in shown] == [True, False]


def test_the_page_names_every_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    of_credit = {"--out", "--most-step-tokens", "--format", "--help"}
    options = set(re.findall(r"--[a-z-]+", CliRunner().invoke(cli.app, ["value", "--help"], env=WIDE).output))
    assert len(options) > 20
    assert not options - of_credit - set(re.findall(r"--[a-z-]+", page))
