"""Commands in a child process to which something happens: killed at one of its writes, or with no room for more."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from apportion import cli

Work = Callable[[], object]

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
"""What Python says (`sys.audit`) before it changes a folder; the opening of a file is looked at besides."""
SYNC = "fsync "
ROOM = 10
"""Bytes that a file can still grow by on a full disk, so that it is cut short."""


def command(*words: str) -> Work:
    """A command line, as `apportion` runs it."""

    def run() -> None:
        sys.argv = ["apportion", *words]
        cli.console.file = sys.stdout
        cli.main()

    return run


def in_child(work: Work) -> tuple[int, str]:
    """Do work in a forked child; give its wait status and all that it said."""
    [ended] = in_children([work])
    return ended


def in_children(works: Sequence[Work]) -> list[tuple[int, str]]:
    """Do works side by side, each in a forked child; give the wait status of each and all that it said."""
    children = [_started(work) for work in works]
    ended = []
    for child, reading in children:
        with open(reading, encoding="utf-8") as pipe:
            said = pipe.read()
        ended.append((os.waitpid(child, 0)[1], said))
    return ended


def _started(work: Work) -> tuple[int, int]:
    """The number of the child that does it, and where to read what it says."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on, where there are other threads
        child = os.fork()
    if child == 0:
        _end_with(work, writing)
    os.close(writing)
    return child, reading


def _end_with(work: Work, writing: int) -> NoReturn:
    status = 70
    try:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.stdout = sys.stderr = os.fdopen(writing, "w", encoding="utf-8")
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def heard(folder: Path, work: Work, told: Callable[[str], object]) -> Work:
    """Work, and `told` of every write under a folder before it is done, by what is done and the path.

    To sync a file is a write as well: what was written before is then cut short, if told ends the process. Only for a
    child: the process never gets rid of it.
    """
    at, sync = str(folder), os.fsync

    def hear(event: str, about: tuple[Any, ...]) -> None:
        if event == "open":
            if not isinstance(about[0], str) or not about[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in CHANGES:
            return
        # within a folder that is being removed, names are relative to it
        if about[0].startswith(at) or (event in ("os.remove", "os.rmdir") and about[1] != -1):
            told(f"{event} {about[0]}")

    def told_sync(file: int) -> None:
        told(f"{SYNC}{file}")
        sync(file)

    def run() -> None:
        sys.addaudithook(hear)
        os.fsync = told_sync
        work()

    return run


def writes_of(folder: Path, work: Work) -> list[str]:
    """The names of all writes of work, which has to end well."""
    file = folder.with_name("writes")
    with open(file, "wb", buffering=0) as out:
        status, said = in_child(heard(folder, work, lambda name: out.write(f"{name}\n".encode())))
    assert status == 0, said
    return file.read_text().splitlines()


def killed_at(number: int, folder: Path, work: Work) -> Work:
    """Work, killed at its write of this number under the folder; it ends well if there are fewer."""
    left = iter(range(number, -1, -1))

    def told(name: str) -> None:
        if next(left, 1) == 0:
            if name.startswith(SYNC):
                _cut_short(int(name.removeprefix(SYNC)))
            os.kill(os.getpid(), signal.SIGKILL)

    return heard(folder, work, told)


def _cut_short(file: int) -> None:
    """Take the end of what was written to a file away; one that was opened to be read stays."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, max(0, os.fstat(file).st_size - ROOM))


def full_from(write: str, folder: Path, work: Work) -> Work:
    """Work, for which the disk is full from the first write on whose name has that in it.

    No file can grow any more then, and trying it fails, since Python ignores the signal that would come first.
    """

    def told(name: str) -> None:
        if write in name:
            path = Path(name.partition(" ")[2])
            size = path.stat().st_size if path.is_file() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + ROOM, resource.RLIM_INFINITY))

    return heard(folder, work, told)
