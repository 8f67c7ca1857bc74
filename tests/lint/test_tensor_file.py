"""Files of any framework: read as they are, never run, and refused in one line when they are damaged."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from apportion.errors import InputError
from apportion.lint.report import lint_file
from apportion.lint.tensor_file import read_columns

MASK = [[1, 0, 1], [1, 1, 0]]
REWARDS = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
GOOD = {"action_mask": MASK, "rewards": REWARDS, "advantages": [[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]]}
SAID = {"gamma": 0.5, "recipe": "to_go"}


def npz(path: Path) -> Path:
    numpy.savez(path / "batch.npz", **{name: numpy.array(column) for name, column in (GOOD | SAID).items()})
    return path / "batch.npz"


def safetensors(path: Path) -> Path:
    tensors = {name: torch.tensor(column, dtype=torch.bfloat16) for name, column in GOOD.items()}
    save_file(tensors, path / "batch.safetensors", {"gamma": "0.5", "recipe": "to_go", "format": "pt"})
    return path / "batch.safetensors"


def row_by_row() -> list[dict]:
    return [{name: column[n] for name, column in GOOD.items()} | SAID for n in range(2)]


def jsonl(path: Path) -> Path:
    (path / "batch.jsonl").write_text("".join(json.dumps(row) + "\n" for row in row_by_row()))
    return path / "batch.jsonl"


def parquet(path: Path) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(row_by_row()), path / "batch.parquet")
    return path / "batch.parquet"


every_format = pytest.mark.parametrize("write", [npz, safetensors, jsonl, parquet], ids=lambda write: write.__name__)


def verdicts(path: Path, given: dict | None = None, renamed: dict | None = None) -> dict[str, str]:
    return {found.code: found.verdict for found in lint_file(path, given or {}, renamed or {})}


@every_format
def test_a_file_of_any_format_says_the_same(write, tmp_path):
    found = verdicts(write(tmp_path))
    assert "broken" not in found.values()
    assert found["gap-leak"] == found["reward-lost"] == "holds"


@every_format
def test_what_is_given_takes_the_place_of_what_the_file_says(write, tmp_path):
    assert verdicts(write(tmp_path), {"gamma": 1.0, "recipe": None})["credit-differs"] == "broken"


@every_format
def test_a_column_may_be_called_otherwise(write, tmp_path):
    # what is called rewards takes the place of the advantages: it is not their sum to come
    path = write(tmp_path)
    assert verdicts(path, renamed={"advantages": "rewards"})["credit-differs"] == "not checkable"
    with pytest.raises(InputError, match="there is no column 'reward'; did you mean 'rewards'"):
        verdicts(path, renamed={"rewards": "reward"})


def test_rows_of_mixed_length_and_null_are_padded_and_unscored(tmp_path):
    path = tmp_path / "ragged.jsonl"
    path.write_text('{"action_mask": [1, 0, 1], "rewards": [0, 0, null]}\n{"action_mask": [true], "rewards": [1.5]}\n')
    said = lint_file(path, {}, {})[0].said
    assert said.startswith("2 rollouts in 2 rows of 3; 3 sampled tokens of 4; 1 rollouts not scored (NaN)")
    assert said.endswith("rows of mixed length were padded to 3")


def test_columns_that_are_not_known_are_not_read(tmp_path):
    numpy.savez(tmp_path / "more.npz", action_mask=numpy.array(MASK), junk=numpy.array([object()], dtype=object))
    assert read_columns(tmp_path / "more.npz", {})["junk"] is None
    assert "not looked at: junk" in lint_file(tmp_path / "more.npz", {}, {})[0].said


class Explosive:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def object_array(path: Path) -> bytes:
    buffer = io.BytesIO()
    numpy.savez(buffer, action_mask=numpy.array([Explosive(path / "exploded")], dtype=object))
    return buffer.getvalue()


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def archive_of(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def single_array() -> bytes:
    buffer = io.BytesIO()
    numpy.save(buffer, numpy.ones((2, 3)))
    return buffer.getvalue()


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9999999), }"
HUGE = b"\x93NUMPY\x01\x00" + len(HEADER + b"\n").to_bytes(2, "little") + HEADER + b"\n"

HOSTILE = [
    pytest.param("x.npz", lambda path: b"", "not an .npz file", id="empty-npz"),
    pytest.param("x.npz", lambda path: b"PK\x03\x04 nonsense", "not an .npz file", id="not-a-zip"),
    pytest.param("x.npz", lambda path: half(npz(path).read_bytes()), "not an .npz file", id="half-a-zip"),
    pytest.param("x.npz", lambda path: pickle.dumps(Explosive(path / "exploded")), "not an .npz file", id="pickle"),
    pytest.param("x.npz", object_array, "not an .npz file of plain arrays", id="object-array"),
    pytest.param("x.npz", lambda path: single_array(), "not an .npz file", id="a-single-array"),
    pytest.param("x.npz", lambda path: archive_of(action_mask=b"junk"), "action_mask", id="junk-in-the-zip"),
    pytest.param("x.npz", lambda path: archive_of(action_mask=HUGE), "not an .npz file", id="huge-shape"),
    pytest.param("x.npz", lambda path: archive_of(action_mask=half(single_array())), "not an .npz", id="cut-array"),
    pytest.param("x.safetensors", lambda path: b"", "not a safetensors file", id="empty-safetensors"),
    pytest.param("x.safetensors", lambda path: b"\xff" * 64, "not a safetensors file", id="huge-header"),
    pytest.param(
        "x.safetensors", lambda path: half(safetensors(path).read_bytes()), "not a safetensors file", id="half-of-it"
    ),
    pytest.param("x.jsonl", lambda path: b"", "holds no rows", id="empty-jsonl"),
    pytest.param("x.jsonl", lambda path: b'{"action_mask": [1', "line 1: not JSON", id="cut-json"),
    pytest.param("x.jsonl", lambda path: b"[1]\n", "expected an object", id="no-object"),
    pytest.param("x.jsonl", lambda path: b"\xff\xfe\n", "not UTF-8", id="not-utf-8"),
    pytest.param(
        "x.jsonl",
        lambda path: b'{"action_mask": [1]}\n{"rewards": [1]}\n',
        "line 2: .* must be in every row",
        id="holes",
    ),
    pytest.param(
        "x.jsonl",
        lambda path: b'{"action_mask": [1, 1, 1], "rewards": [1, 0]}\n',
        "row 0: rewards has 2 entries",
        id="ragged",
    ),
    pytest.param(
        "x.jsonl", lambda path: b'{"action_mask": [[1]]}\n', "expected a number, got '\\[1\\]'", id="too-deep"
    ),
    pytest.param("x.jsonl", lambda path: b'{"action_mask": {"a": 1}}\n', "expected a number", id="object-in-a-row"),
    pytest.param(
        "x.jsonl",
        lambda path: b'{"action_mask": [1], "gamma": 1}\n{"action_mask": [1], "gamma": 0}\n',
        "gamma must be one value",
        id="two-gammas",
    ),
    pytest.param("x.parquet", lambda path: b"PAR1 nonsense PAR1", "not a Parquet file", id="not-parquet"),
    pytest.param("x.parquet", lambda path: half(parquet(path).read_bytes()), "not a Parquet file", id="half-a-parquet"),
    pytest.param("x.pt", lambda path: b"", r"must end in one of \.npz", id="other-ending"),
]


@pytest.mark.parametrize(("name", "content", "words"), HOSTILE)
def test_a_damaged_or_hostile_file_is_refused_in_one_line_and_nothing_of_it_is_run(name, content, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(content(tmp_path))
    with pytest.raises(InputError, match=words) as refused:
        lint_file(path, {}, {})
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        lint_file(tmp_path / "gone.npz", {}, {})
    with pytest.raises(InputError, match="there is no such file"):
        lint_file(tmp_path, {}, {})


def test_shapes_that_do_not_fit_are_refused_with_the_name_of_the_file(tmp_path):
    numpy.savez(tmp_path / "odd.npz", action_mask=numpy.ones((2, 3)), values=numpy.ones((2, 4)))
    with pytest.raises(InputError, match=r"odd\.npz: values has shape \(2, 4\), action_mask has \(2, 3\)"):
        lint_file(tmp_path / "odd.npz", {}, {})
