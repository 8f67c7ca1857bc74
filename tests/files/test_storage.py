"""Rows on disk: what is written comes back, what cannot be read says where, and writing is all or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.files import read_rows, write_atomically, write_rows

ROWS: list[dict[str, Any]] = [
    {"id": "a", "outcome": None, "group": "g", "n": 1},
    {"id": "b", "outcome": 0.1, "group": "g", "scores": [0.5, -0.25], "nested": {"text": "é\u2028\n日本"}},
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path)]


def error_of(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        rows_of(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_come_back_with_fields_that_only_some_of_them_have(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows.{ending}"

    write_rows(path, ROWS)

    assert rows_of(path) == ROWS


def test_each_row_comes_with_its_place_and_blank_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n', encoding="utf-8")

    assert list(read_rows(path)) == [(f"{path}, line 1", {"a": 1}), (f"{path}, line 3", {"a": 2})]


def test_each_row_of_parquet_comes_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, [{"a": 1}, {"a": 2}])

    assert [place for place, _ in read_rows(path)] == [f"{path}, row 1", f"{path}, row 2"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"a": 1}\r\n{"a": 2}\r\n', id="lines as Windows ends them"),
        pytest.param(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', id="a byte order mark"),
        pytest.param(b'{"a": 1}\n{"a": 2}', id="no newline at the end"),
    ],
)
def test_files_from_elsewhere_are_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)

    assert rows_of(path) == [{"a": 1}, {"a": 2}]


def test_text_stays_readable_in_jsonl(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"text": "日本"}])

    assert (tmp_path / "rows.jsonl").read_text(encoding="utf-8") == '{"text": "日本"}\n'


def test_half_a_surrogate_pair_survives_in_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    write_rows(path, [{"text": "x\ud800"}])

    assert rows_of(path) == [{"text": "x\ud800"}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b'{"a": 1}\n{"a": \n', "line 2: not JSON", id="bad JSON"),
        pytest.param(b'{"a": 1}\n[1]\n', "line 2: expected an object with fields, got list", id="no object"),
        pytest.param(b'{"a": 1}\n{"a": "\xff"}\n', "line 2: not UTF-8 text", id="not UTF-8"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}\n", "line 1: not JSON", id="an endless number"),
        pytest.param(b"[" * 100_000, "line 1: not JSON", id="endless nesting"),
        pytest.param(b"", "the file holds no rows", id="empty"),
        pytest.param(b"\n \n", "the file holds no rows", id="blank lines"),
    ],
)
def test_a_file_that_does_not_parse_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)

    found = error_of(path)

    assert found.startswith(str(path))
    assert said in found


def test_a_parquet_file_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1 or not")

    assert f"{path}: not a Parquet file" in error_of(path)


def test_a_missing_file_and_a_folder_are_no_file(tmp_path: Path) -> None:
    assert "there is no such file" in error_of(tmp_path / "none.jsonl")
    assert "there is no such file" in error_of(tmp_path)


@pytest.mark.parametrize("name", ["rows.csv", "rows"])
def test_another_ending_is_refused_both_ways(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    with pytest.raises(InputError, match=r"must end in \.jsonl or \.parquet"):
        write_rows(path, ROWS)
    assert not path.exists()
    path.write_text('{"a": 1}\n', encoding="utf-8")
    assert "must end in .jsonl, .json or .parquet" in error_of(path)


def test_a_json_file_is_read_but_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.jsonl or \.parquet"):
        write_rows(tmp_path / "rows.json", ROWS)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "places"),
    [
        pytest.param('[{"a": 1},\n {"a": 2}]', ["entry 1", "entry 2"], id="an array"),
        pytest.param('\ufeff[{"a": 1}, {"a": 2}]', ["entry 1", "entry 2"], id="an array after a byte order mark"),
        pytest.param('\n{"a": 1}\n{"a": 2}\n', ["line 2", "line 3"], id="lines"),
    ],
)
def test_a_json_file_holds_an_array_or_lines(tmp_path: Path, content: str, places: list[str]) -> None:
    path = tmp_path / "rows.json"
    path.write_text(content, encoding="utf-8")

    assert list(read_rows(path)) == [(f"{path}, {place}", {"a": n}) for n, place in enumerate(places, start=1)]


def test_an_object_alone_in_a_json_file_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{\n  "a": 1\n}\n', encoding="utf-8")

    assert rows_of(path) == [{"a": 1}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b'[{"a": 1}, 2]', "entry 2: expected an object with fields, got int", id="no object"),
        pytest.param(b'[{"a": 1}, {"a": ]', "rows.json: not JSON", id="a broken array"),
        pytest.param(b'{"a": 1}\n{"a": \n', "line 2: not JSON", id="a broken line"),
        pytest.param(b'["\xff"]', "not UTF-8 text", id="not UTF-8"),
        pytest.param(b"5", "entry 1: expected an object with fields, got int", id="a number"),
        pytest.param(b"[]", "the file holds no rows", id="an empty array"),
        pytest.param(b"", "the file holds no rows", id="empty"),
    ],
)
def test_a_json_file_that_does_not_parse_says_where(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)

    assert said in error_of(path)


def test_a_score_that_is_null_stays_null_in_parquet(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"reward": 0.5, "note": "x"}, {"reward": None, "note": None}]
    path = tmp_path / "rows.parquet"

    write_rows(path, rows)

    assert rows_of(path) == [{"reward": 0.5, "note": "x"}, {"reward": None}]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, ending: str) -> None:
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist"):
        write_rows(tmp_path / "nowhere" / f"rows.{ending}", ROWS)


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        pytest.param("rows.jsonl", [{"a": 1.0}, {"a": float("nan")}], "line 2: cannot be written", id="NaN in JSON"),
        pytest.param("rows.jsonl", [{"a": float("-inf")}], "JSON has no NaN or inf", id="-inf in JSON"),
        pytest.param("rows.parquet", [{"a": 1}, {"a": "x"}], "write .jsonl instead", id="two types in Parquet"),
        pytest.param("rows.parquet", [{"a": "\ud800"}], "write .jsonl instead", id="half a pair in Parquet"),
    ],
)
def test_rows_that_the_format_cannot_hold_leave_the_old_file(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")

    with pytest.raises(InputError) as caught:
        write_rows(path, rows)

    assert said in str(caught.value)
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*args: object) -> None:
        raise OSError("no space left on device")

    path = tmp_path / "rows.jsonl"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, step, fail)

    with pytest.raises(InputError, match=r"could not be written: no space left on device$"):
        write_atomically(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_whole_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    write_atomically(path, b"old")
    seen = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (seen.append(path.read_bytes()), sync(handle))[1])

    write_atomically(path, b"new")

    assert seen == [b"old"]
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
