"""What wrote a file is seen by the fields of its first row, can be said instead, and is told apart in every fixture."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from apportion import cli
from apportion.errors import InputError
from apportion.files import FORMATS, formats, load, read_rows

FIXTURES = Path(__file__).parent / "fixtures"
PAGE = Path(__file__).parents[2] / "docs" / "rollout-files.md"
WRITTEN_BY = {"trl": "trl", "verl": "verl", "prime": "prime_rl", "tau": "chat"}
FILES = sorted(path.name for path in FIXTURES.iterdir() if path.suffix != ".md")
ODD: list[Any] = [None, True, 10**400, math.nan, "x", [], [None], [10**30], [{"role": []}], [[]], {}]
NATIVE: dict[str, Any] = {"response": "5", "outcome": 1, "group": "g"}


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_what_wrote_a_file_is_seen_by_its_fields(name: str) -> None:
    place, row = next(iter(read_rows(FIXTURES / name)))

    found = [format for format, (read, _) in FORMATS.items() if read is formats._by_fields(place, row)]

    assert found == [WRITTEN_BY[name.partition("-")[0]]]


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_of_no_more_than_the_named_fields_is_enough(name: str) -> None:
    read, marks = FORMATS[name]

    assert all(formats._by_fields("line 1", dict.fromkeys(names)) is read for names in marks)


@pytest.mark.parametrize("name", FILES)
def test_the_format_may_be_said(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = load(FIXTURES / name, format=WRITTEN_BY[name.partition("-")[0]])
        seen = load(FIXTURES / name)

    assert str(said.rows()) == str(seen.rows())


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_others_gets_its_credit_and_becomes_a_rollout_file(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(cli.app, ["credit", str(FIXTURES / name), "--recipe", "reinforce", "--out", str(out)])
        rows = load(FIXTURES / name).rows()

    assert done.exception is None
    assert str(load(out).rows()) == str(rows)


@pytest.mark.parametrize("name", FILES)
def test_whatever_stands_in_a_field_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    format = WRITTEN_BY[name.partition("-")[0]]
    _, row = next(iter(read_rows(FIXTURES / name)))
    refused = []
    for field in row:
        for odd in ODD:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    load(written(tmp_path, row | {field: odd}), format=format)
            except InputError as error:
                refused.append(str(error))

    assert refused
    assert all(said.startswith(str(tmp_path / "rows.jsonl")) and "\n" not in said for said in refused)


def test_a_rollout_file_with_fields_of_others_stays_one(tmp_path: Path) -> None:
    path = written(tmp_path, NATIVE | {"messages": [], "step": 1, "prompt": "2 + 3?", "completion": "6"})

    assert load(path).rows()[0].text == "2 + 3?5"


def test_what_fits_nothing_is_told_the_formats_that_were_tried_and_the_fields_that_came(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, {"question": "2 + 3?", "answer": "5"}))

    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'rows.jsonl'}, line 1: no format has the fields question, answer; tried ")
    for name, (_, marks) in FORMATS.items():
        assert name in said
        assert all(field in said for names in marks for field in names)
    assert "\n" not in said


def test_a_row_without_fields_fits_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no format has the fields of an empty row"):
        load(written(tmp_path, {}))


def test_a_later_row_of_another_format_is_refused_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: the field 'response' is missing; the row has messages, reward"):
        load(written(tmp_path, NATIVE, {"messages": [], "reward": 1}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param("vrel", "there is no format 'vrel'; did you mean 'verl'? known: apportion, trl,", id="misspelt"),
        pytest.param("prime-rl", "did you mean 'prime_rl'?", id="a hyphen"),
        pytest.param("verl:score", "there is no format 'verl:score'", id="weights for another"),
        pytest.param("", "there is no format ''", id="empty"),
    ],
)
def test_an_unknown_format_gets_the_nearest(tmp_path: Path, said: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path / "not read.jsonl", format=said)

    assert words in str(caught.value)


def test_the_command_line_takes_the_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ({"step": 1, "prompt": "p", "completion": "c", "a": a, "b": 8.0} for a in (0.0, 1.0))
    asked = ["--recipe", "reinforce", "--out", "out.jsonl", "--format", "trl:a=0.5"]

    done = CliRunner().invoke(cli.app, ["credit", str(written(tmp_path, *rows)), *asked])

    assert done.exit_code == 0, done.output
    assert [json.loads(line)["outcome"] for line in Path("out.jsonl").read_text().splitlines()] == [0.0, 0.5]


@pytest.mark.parametrize("text", [PAGE.read_text(encoding="utf-8"), formats.__doc__ or ""], ids=["page", "module"])
def test_every_format_is_described_with_its_fields(text: str) -> None:
    for name, (_, marks) in FORMATS.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{name}`")]
        assert all(f"`{field}`" in line for names in marks for field in names)
