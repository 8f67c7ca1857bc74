"""Asynchronous work in a thread of its own, seen from outside as a plain generator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
Put = Callable[[Item], None]


@dataclass(frozen=True)
class _Over:
    error: BaseException | None


def stream(work: Callable[[Put[Item]], Coroutine[Any, Any, None]]) -> Generator[Item, None, None]:
    """Yield what `work` puts as soon as it does, then raise what it raised.

    Works on while the caller does something else, also where the caller is itself in an event loop. Closing the
    generator cancels the work and waits until its thread has ended.
    """
    came: SimpleQueue[Item | _Over] = SimpleQueue()
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    task = loop.create_task(work(came.put))

    def run() -> None:
        with runner:
            runner.run(asyncio.wait([task]))
        came.put(_Over(None if task.cancelled() else task.exception()))

    thread = Thread(target=run, name="apportion-server", daemon=True)
    thread.start()
    try:
        while not isinstance(item := came.get(), _Over):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        with suppress(RuntimeError):  # the loop is closed: all is done
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


async def side_by_side(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Run `work` so many times side by side; the first that fails stops all."""
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
