"""Continuations on disk: none is paid for twice, whoever is killed and whoever else writes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.values import store
from apportion.values.engine import Drawn, Engine, Prefix, Wanted
from apportion.values.store import Stored

A, B = Prefix("one", (7, 8), 1), Prefix("one", (7, 9), 1)


@dataclass
class Numbered:
    """Continuation number n of a prefix is the prefix, n and the salt; remembers what it was asked."""

    salt: int = 0
    fingerprint: str = "numbered"
    asked: list[tuple[Prefix, int, int]] = field(default_factory=list)
    fails_at: int = 10**9

    def limit(self, prefix: Prefix) -> int:
        return 10 - prefix.sampled

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        for i, want in enumerate(wanted):
            self.asked.append((want.prefix, want.first, want.count))
            for number in range(want.first, want.first + want.count):
                if number == self.fails_at:
                    raise InputError("the server went away")
                tokens = (*want.prefix.tokens, number, self.salt)
                yield Drawn(i, number, tokens, ended=number % 2 == 0, cost=len(tokens))


@dataclass
class Lots(Numbered):
    """The same, three at a time."""

    def lots(self, wanted: Sequence[Wanted]) -> Iterator[list[Drawn]]:
        drawn = list(self.draw(wanted))
        return (drawn[first : first + 3] for first in range(0, len(drawn), 3))


def drawn_of(engine: Engine, path: Path, *wanted: Wanted) -> list[Drawn]:
    with closing(Stored(engine, path)) as stored:
        return list(stored.draw(wanted))


def count_in(path: Path) -> int:
    """Rows that another reader of the file sees."""
    with closing(sqlite3.connect(path)) as base:
        return int(base.execute("select count(*) from continuations").fetchone()[0])


def test_what_was_drawn_once_is_given_again_for_nothing(tmp_path: Path) -> None:
    engine, path = Numbered(), tmp_path / "s"
    first = drawn_of(engine, path, Wanted(A, 0, 2), Wanted(B, 1, 1))
    again = drawn_of(engine, path, Wanted(A, 0, 2), Wanted(B, 1, 1))

    assert first == [
        Drawn(0, 0, (7, 8, 0, 0), True, 4),
        Drawn(0, 1, (7, 8, 1, 0), False, 4),
        Drawn(1, 1, (7, 9, 1, 0), False, 4),
    ]
    assert again == [Drawn(one.of, one.number, one.tokens, one.ended, 0) for one in first]
    assert engine.asked == [(A, 0, 2), (B, 1, 1)]


def test_only_the_numbers_that_are_missing_are_asked_for(tmp_path: Path) -> None:
    engine, path = Numbered(), tmp_path / "s"
    drawn_of(engine, path, Wanted(A, 1, 1), Wanted(A, 4, 1), Wanted(B, 0, 1))
    engine.asked.clear()

    found = drawn_of(engine, path, Wanted(A, 0, 6), Wanted(B, 0, 2))

    assert engine.asked == [(A, 0, 1), (A, 2, 2), (A, 5, 1), (B, 1, 1)]
    assert [(one.of, one.number, one.cost) for one in found] == [
        (0, 1, 0),
        (0, 4, 0),
        (1, 0, 0),
        (0, 0, 4),
        (0, 2, 4),
        (0, 3, 4),
        (0, 5, 4),
        (1, 1, 4),
    ]


def test_a_continuation_is_on_disk_before_it_is_seen(tmp_path: Path) -> None:
    with closing(Stored(Numbered(), tmp_path / "s")) as stored:
        for seen, _ in enumerate(stored.draw([Wanted(A, 0, 4)]), start=1):
            assert count_in(tmp_path / "s") == seen


def test_a_lot_is_on_disk_as_a_whole_before_any_of_it_is_seen(tmp_path: Path) -> None:
    with closing(Stored(Lots(), tmp_path / "s")) as stored:
        on_disk = [count_in(tmp_path / "s") for _ in stored.draw([Wanted(A, 0, 4)])]
    assert on_disk == [3, 3, 3, 4]


def test_what_came_before_an_engine_gave_up_is_kept(tmp_path: Path) -> None:
    engine = Numbered(fails_at=2)
    with pytest.raises(InputError, match="the server went away"):
        drawn_of(engine, tmp_path / "s", Wanted(A, 0, 4))
    engine = Numbered()
    drawn_of(engine, tmp_path / "s", Wanted(A, 0, 4))
    assert engine.asked == [(A, 2, 2)]


def test_a_prefix_is_known_by_its_tokens_whatever_its_group_is_called(tmp_path: Path) -> None:
    engine, twin = Numbered(), Prefix("two", A.tokens, 1)

    found = drawn_of(engine, tmp_path / "s", Wanted(A, 0, 2), Wanted(twin, 1, 2))

    assert engine.asked == [(A, 0, 2), (twin, 2, 1)]
    assert [(one.of, one.number, one.tokens[2], one.cost) for one in found] == [
        (0, 0, 0, 4),
        (0, 1, 1, 4),
        (1, 1, 1, 0),
        (1, 2, 2, 4),
    ]


@pytest.mark.parametrize(
    ("prefix", "engine"),
    [
        pytest.param(Prefix("one", (7, 8, 9), 1), Numbered(), id="other tokens"),
        pytest.param(Prefix("one", (7, 8), 2), Numbered(), id="another limit"),
        pytest.param(A, Numbered(fingerprint="other"), id="another fingerprint"),
    ],
)
def test_what_is_continued_otherwise_is_another_continuation(tmp_path: Path, prefix: Prefix, engine: Numbered) -> None:
    drawn_of(Numbered(), tmp_path / "s", Wanted(A, 0, 1))
    (found,) = drawn_of(engine, tmp_path / "s", Wanted(prefix, 0, 1))
    assert found.cost > 0
    assert count_in(tmp_path / "s") == 2


def test_tokens_of_any_size_and_none_at_all_come_back(tmp_path: Path) -> None:
    class Odd(Numbered):
        def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
            yield Drawn(0, 0, (2**63 - 1, -(2**63), 0), True, 3)
            yield Drawn(0, 1, (), False, 0)

    first, again = (drawn_of(Odd(), tmp_path / "s", Wanted(A, 0, 2)) for _ in range(2))
    assert [one.tokens for one in again] == [one.tokens for one in first] == [(2**63 - 1, -(2**63), 0), ()]
    assert [one.ended for one in again] == [True, False]


def test_the_first_to_write_a_number_has_named_it_for_all(tmp_path: Path) -> None:
    with (
        closing(Stored(Numbered(salt=1), tmp_path / "s")) as one,
        closing(Stored(Numbered(salt=2), tmp_path / "s")) as two,
    ):
        late = two.draw([Wanted(A, 0, 2)])
        assert next(late).tokens == (7, 8, 0, 2)
        assert [found.tokens for found in one.draw([Wanted(A, 0, 2)])] == [(7, 8, 0, 2), (7, 8, 1, 1)]
        assert next(late) == Drawn(0, 1, (7, 8, 1, 1), False, 4)
        assert len(one) == len(two) == 2


def broken(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """A store with something in it, then changed."""

    def make(path: Path) -> None:
        drawn_of(Numbered(), path, Wanted(A, 0, 400))
        path.write_bytes(change(path.read_bytes()))

    return make


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table continuations (key, number)")


def of_tomorrow(path: Path) -> None:
    drawn_of(Numbered(), path, Wanted(A, 0, 1))
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"pragma user_version = {store.VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        pytest.param(lambda path: path.write_text("rollouts, not a store\n" * 100), "not a database", id="text"),
        pytest.param(foreign, "a database of something else", id="another program's database"),
        pytest.param(of_tomorrow, "is a store of version 2; this version reads 1", id="another version"),
        pytest.param(broken(lambda held: held[: len(held) // 2]), "malformed", id="cut in half"),
        pytest.param(broken(lambda held: held[:8192] + b"\xff" * 4096 + held[12288:]), "damaged", id="a page of noise"),
        pytest.param(Path.mkdir, "cannot be read or written", id="a folder"),
    ],
)
def test_a_file_that_is_no_sound_store_is_refused_in_one_line_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "s"
    make(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(InputError, match=why) as refused:
        Stored(Numbered(), path)

    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert not path.is_file() or path.read_bytes() == before


def test_a_store_names_itself_where_sqlite_keeps_the_application_id(tmp_path: Path) -> None:
    drawn_of(Numbered(), tmp_path / "s", Wanted(A, 0, 1))
    assert (tmp_path / "s").read_bytes()[68:72] == b"APVT"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read or written"):
        Stored(Numbered(), tmp_path / "gone" / "s")


def test_a_continuation_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    drawn_of(Numbered(), tmp_path / "s", Wanted(A, 0, 1))
    content = (tmp_path / "s").read_bytes()
    place = content.index((7).to_bytes(8, "little") + (8).to_bytes(8, "little"))
    (tmp_path / "s").write_bytes(content[:place] + b"\x06" + content[place + 1 :])

    with pytest.raises(InputError, match="a continuation is not what was written"):
        drawn_of(Numbered(), tmp_path / "s", Wanted(A, 0, 1))


def test_killed_before_any_statement_of_sql_nothing_is_lost_or_drawn_again(tmp_path: Path) -> None:
    said = subprocess.run([sys.executable, __file__, "kill", str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(said.stdout) > 20


def test_two_processes_that_write_at_once_agree_on_every_number(tmp_path: Path) -> None:
    subprocess.run([sys.executable, __file__, "race", str(tmp_path)], check=True)
    one, two = ((tmp_path / name).read_text().splitlines() for name in ("0", "1"))
    assert len(one) == 300
    assert sorted(one) == sorted(two)
    assert count_in(tmp_path / "s") == 300


def kill_at_every_statement(folder: Path) -> None:
    """Kill a child before its 1st, 2nd, ... statement until one comes through; after each, take the work up again."""
    for moment in range(1, 200):
        path, seen = folder / f"s{moment}", folder / f"seen{moment}"
        child = os.fork()
        if child == 0:
            kill_self_at(moment)
            note(Lots(), path, seen)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        before = numbers_in(seen)
        with closing(Stored(Lots(), path)) as left:
            assert len(left) in (0, 3, 6, 8), "whole lots"
        engine = Lots()
        note(engine, path, folder / "rest")
        again = [n for _, first, count in engine.asked for n in range(first, first + count)]
        assert not set(again) & set(before), "what was seen is not drawn again"
        assert sorted(numbers_in(folder / "rest")) == list(range(8))
        assert count_in(path) == 8
        (folder / "rest").unlink()
        if status == 0:
            assert not again
            print(moment - 1)
            return
        assert os.WTERMSIG(status) == signal.SIGKILL


def numbers_in(seen: Path) -> list[int]:
    return [int(line.split()[0]) for line in seen.read_text().splitlines()] if seen.exists() else []


def kill_self_at(moment: int) -> None:
    """End this process, without any clearing up, when SQLite is about to run so many statements."""
    connect, left = sqlite3.connect, [moment]

    def watched(*arguments: object, **more: object) -> sqlite3.Connection:
        base = connect(*arguments, **more)  # type: ignore[call-overload]

        def count(statement: str) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        base.set_trace_callback(count)
        return base  # type: ignore[no-any-return]

    sqlite3.connect = watched  # type: ignore[assignment]


def note(engine: Engine, path: Path, seen: Path, count: int = 8) -> None:
    """Draw, and write down each number as it is seen."""
    with closing(Stored(engine, path)) as stored, open(seen, "a") as file:
        for found in stored.draw([Wanted(A, 0, count)]):
            print(found.number, *found.tokens[3:], file=file, flush=True)


def race(folder: Path) -> None:
    """Two processes draw the same numbers at once, each its own continuations of them."""
    children = []
    for salt in range(2):
        child = os.fork()
        if child == 0:
            note(Numbered(salt=salt), folder / "s", folder / str(salt), count=300)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


if __name__ == "__main__":
    {"kill": kill_at_every_statement, "race": race}[sys.argv[1]](Path(sys.argv[2]))
