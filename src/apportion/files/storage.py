"""Rows of plain values on disk: JSON lines or Parquet, by the ending of the name. Writing is all or nothing.

Others write `.json` files, with an array of rows or with a row a line: these are read, not written.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apportion.errors import InputError

Row = dict[str, Any]

SCORES = ("outcome", "reward", "score")
"""Fields whose null says something: not scored. Elsewhere in a Parquet file null stands for a field left out."""


def read_rows(path: str | Path) -> Iterator[tuple[str, Row]]:
    """Give every row with the words that say where it stands ("rollouts.jsonl, line 7").

    Raises InputError for a file that is not there, is empty, has another ending, or does not parse.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    readers = {".jsonl": _jsonl_rows, ".json": _json_rows, ".parquet": _parquet_rows}
    rows = readers[_ending(path, readers)](path)
    found = False
    for place, row in rows:
        found = True
        yield place, row
    if not found:
        raise InputError(f"{path}: the file holds no rows")


def write_rows(path: str | Path, rows: Sequence[Row]) -> None:
    """Write rows so that `path` holds either all of them or what it held before."""
    path = Path(path)
    writers = {".jsonl": _as_jsonl, ".parquet": _as_parquet}
    write_atomically(path, writers[_ending(path, writers)](rows, path))


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, then move into place: nobody ever sees half a file.

    Raises InputError with the reason where that cannot be done, as on a full disk.
    """
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist")
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def not_written(path: Path, error: Exception) -> InputError:
    """Says that a file or folder could not be written, and why; torch hides what the system said behind its own."""
    behind = next((each for each in (error, error.__context__) if isinstance(each, OSError) and each.strerror), None)
    reason = behind.strerror if behind else str(error).partition("\n")[0]
    return InputError(f"{path}: could not be written: {reason}")


def _ending(path: Path, known: Iterable[str]) -> str:
    if path.suffix not in known:
        *others, last = known
        raise InputError(f"{path}: the name must end in {', '.join(others)} or {last}, which says what the file holds")
    return path.suffix


def _jsonl_rows(path: Path) -> Iterator[tuple[str, Row]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path}, line {number}"
                yield place, _parsed(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, place)


def _json_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of an array; an object alone is one row, and what is neither has a row a line."""
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        entries = _decoded(content, f"{path}")
    except InputError:
        if content.lstrip().startswith(b"["):
            raise
        yield from _jsonl_rows(path)
        return
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], start=1):
        yield f"{path}, entry {number}", _object(entry, f"{path}, entry {number}")


def _parsed(line: bytes, place: str) -> Row:
    return _object(_decoded(line, place), place)


def _decoded(content: bytes, place: str) -> Any:
    try:
        return json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 text ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error})") from error


def _object(entry: Any, place: str) -> Row:
    if not isinstance(entry, dict):
        raise InputError(f"{place}: expected an object with fields, got {type(entry).__name__}")
    return entry


def _parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    parquet, arrow_error = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (arrow_error, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from error
    for number, row in enumerate(table.to_pylist(), start=1):
        yield (
            f"{path}, row {number}",
            {name: value for name, value in row.items() if value is not None or name in SCORES},
        )


def _as_jsonl(rows: Sequence[Row], path: Path) -> bytes:
    lines = []
    for number, row in enumerate(rows, start=1):
        try:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: cannot be written ({error}); JSON has no NaN or inf") from error
        try:
            lines.append(line.encode() + b"\n")
        except UnicodeEncodeError:  # half a surrogate pair: text in JSON may hold one, UTF-8 may not
            lines.append(json.dumps(row).encode() + b"\n")
    return b"".join(lines)


def _as_parquet(rows: Sequence[Row], path: Path) -> bytes:
    parquet, arrow_error = _pyarrow()
    import io

    import pyarrow

    buffer = io.BytesIO()
    # arrow takes its columns from the first row: name them all there
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        parquet.write_table(pyarrow.Table.from_pylist([{**dict.fromkeys(names), **row} for row in rows]), buffer)
    except (arrow_error, UnicodeEncodeError) as error:
        raise InputError(f"{path}: cannot be written as Parquet ({error}); write .jsonl instead") from error
    return buffer.getvalue()


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'apportion[parquet]'") from error
    return pyarrow.parquet, pyarrow.ArrowException
