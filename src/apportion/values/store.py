"""Continuations on disk, so that none is paid for twice: an engine around an engine.

One SQLite file. A continuation is named by what it continues, how, and its number: the sha256 of the engine's
fingerprint, the most tokens it may have and the token ids of its prefix, and the number. So it serves any rollouts that
run through the same text, whatever their groups are called.

What came from the engine is on disk before anybody sees it, and a process that is killed leaves all of it there.
Several processes on one machine may share a store: the first to write a number has named it for all.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from apportion.errors import InputError
from apportion.values.engine import Drawn, Engine, Prefix, Wanted

MARK = 0x41505654
"""The `application_id` of a store, by which the file is known."""
VERSION = 1
PATIENCE = 60.0
"""Seconds to wait while another process writes."""

TABLE = """create table continuations (
    key blob not null, number integer not null, tokens blob not null, ended integer not null, crc integer not null,
    primary key (key, number)
)"""

Found = tuple[tuple[int, ...], bool]
"""Tokens of a continuation, and whether it ended by itself."""


@runtime_checkable
class InLots(Protocol):
    """An engine whose continuations come many at once. A lot is written as a whole or not at all.

    Where the chance of a continuation hangs on its lot, whoever was killed then asks for the same lots again.
    """

    def lots(self, wanted: Sequence[Wanted]) -> Iterator[list[Drawn]]: ...


class Stored:
    """Gives what the store at `path` holds, at no cost; asks the engine for the rest, and keeps it."""

    def __init__(self, engine: Engine, path: str | Path) -> None:
        """Open the store, or make it.

        Raises InputError for a file that is no store, is damaged, or cannot be written; it is left as it was.
        """
        self.engine, self.path = engine, Path(path)
        with self._refusing():
            self._base = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._refusing():
                self._set_up()
        except BaseException:
            self._base.close()
            raise

    def close(self) -> None:
        self._base.close()

    def __len__(self) -> int:
        """Continuations in the store, whoever drew them."""
        with self._refusing():
            return int(self._base.execute("select count(*) from continuations").fetchone()[0])

    @property
    def fingerprint(self) -> str:
        return self.engine.fingerprint

    def limit(self, prefix: Prefix) -> int:
        return self.engine.limit(prefix)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        """Yield what the store holds, in the order asked for, then what the engine draws, each written first.

        Prefixes that only their groups tell apart share the continuation of a number.
        """
        keys = [self._key(want.prefix) for want in wanted]
        missing: dict[tuple[bytes, int], list[int]] = {}  # which of `wanted` wait for a continuation
        for i, (want, key) in enumerate(zip(wanted, keys, strict=True)):
            held = self._held(key, want.first, want.count)
            for number in range(want.first, want.first + want.count):
                if number in held:
                    tokens, ended = held[number]
                    yield Drawn(i, number, tokens, ended, cost=0)
                else:
                    missing.setdefault((key, number), []).append(i)
        asked = _asked(wanted, missing)
        for lot in self._lots([want for _, want in asked]):
            lot_keys = [keys[asked[drawn.of][0]] for drawn in lot]
            for key, drawn in zip(lot_keys, self._kept(lot, lot_keys), strict=True):
                first, *others = missing.pop((key, drawn.number))
                yield replace(drawn, of=first)
                yield from (replace(drawn, of=other, cost=0) for other in others)

    def _lots(self, wanted: Sequence[Wanted]) -> Iterable[list[Drawn]]:
        if not wanted:
            return []
        if isinstance(self.engine, InLots):
            return self.engine.lots(wanted)
        return ([drawn] for drawn in self.engine.draw(wanted))

    def _key(self, prefix: Prefix) -> bytes:
        about = f"{self.engine.fingerprint}/{self.engine.limit(prefix)}/".encode()
        return hashlib.sha256(about + _packed(prefix.tokens)).digest()

    def _held(self, key: bytes, first: int, count: int) -> dict[int, Found]:
        with self._refusing():
            rows = self._base.execute(
                "select number, tokens, ended, crc from continuations where key = ? and number >= ? and number < ?",
                (key, first, first + count),
            ).fetchall()
        return {number: self._sound(key, number, *row) for number, *row in rows}

    def _sound(self, key: bytes, number: int, tokens: bytes, ended: int, crc: int) -> Found:
        """A row as it was written. Raises InputError where it is not."""
        if crc != _crc(key, number, tokens, bool(ended)):
            raise self._refusal("a continuation is not what was written")
        return struct.unpack(f"<{len(tokens) // 8}q", tokens), bool(ended)

    def _kept(self, lot: list[Drawn], keys: list[bytes]) -> list[Drawn]:
        """Write a lot. Where another process was first with a number, its continuation is the one."""
        kept = []
        with self._refusing(), self._writing():
            for drawn, key in zip(lot, keys, strict=True):
                tokens = _packed(drawn.tokens)
                row = (key, drawn.number, tokens, drawn.ended, _crc(key, drawn.number, tokens, drawn.ended))
                if self._base.execute("insert or ignore into continuations values (?, ?, ?, ?, ?)", row).rowcount:
                    kept.append(drawn)
                else:
                    theirs, ended = self._held(key, drawn.number, 1)[drawn.number]
                    kept.append(replace(drawn, tokens=theirs, ended=ended))
        return kept

    def _set_up(self) -> None:
        with self._writing():
            mark, version = self._number("pragma application_id"), self._number("pragma user_version")
            if (mark, version, self._number("select count(*) from sqlite_master")) == (0, 0, 0):  # a new file
                self._base.execute(f"pragma application_id = {MARK}")
                self._base.execute(f"pragma user_version = {VERSION}")
                self._base.execute(TABLE)
            elif mark != MARK:
                raise self._refusal("a database of something else")
            elif version != VERSION:
                raise InputError(f"{self.path}: is a store of version {version}; this version reads {VERSION}")
        with suppress(sqlite3.OperationalError):  # another process is just opening the store, and does the same
            self._base.execute("pragma journal_mode = wal")
        self._base.execute("pragma synchronous = normal")
        verdict = self._base.execute("pragma quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise self._refusal(verdict)

    def _number(self, query: str) -> int:
        return int(self._base.execute(query).fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """All that is written inside, or nothing."""
        self._base.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._base.execute("rollback")
            raise
        self._base.execute("commit")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise InputError for what SQLite says of the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"{self.path}: the store cannot be read or written ({error})") from error
        except sqlite3.DatabaseError as error:
            raise self._refusal(str(error)) from error

    def _refusal(self, why: str) -> InputError:
        said = " ".join(why.split())
        return InputError(f"{self.path}: no store, or a damaged one ({said}); move it away or name another path")


def _asked(wanted: Sequence[Wanted], missing: dict[tuple[bytes, int], list[int]]) -> list[tuple[int, Wanted]]:
    """What is missing in runs of numbers, each with the first of `wanted` that waits for it."""
    runs: list[tuple[int, Wanted]] = []
    for (_, number), (i, *_) in missing.items():
        last = runs[-1][1] if runs and runs[-1][0] == i else None
        if last is not None and last.first + last.count == number:
            runs[-1] = (i, replace(last, count=last.count + 1))
        else:
            runs.append((i, replace(wanted[i], first=number, count=1)))
    return runs


def _packed(tokens: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}q", *tokens)


def _crc(key: bytes, number: int, tokens: bytes, ended: bool) -> int:
    return zlib.crc32(key + struct.pack("<q?", number, ended) + tokens)
