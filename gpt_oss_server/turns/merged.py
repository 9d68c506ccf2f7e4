"""Merges the streams of choices that run concurrently, in the order in which their items arrive."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended:
    error: Exception | None


def merged(sources: Iterable[AsyncGenerator[T, None]], limit: int | None = None) -> AsyncGenerator[T, None]:
    """All items of all sources. The first failure ends all sources and is raised; closing closes them all.

    At most `limit` sources run at the same time; without it, all do. Each is taken when it begins, so sources
    that are made one by one cost nothing before.
    """
    waiting = iter(sources)
    first = list(islice(waiting, limit))
    if len(first) == 1:
        second = next(waiting, None)
        if second is None:
            return first[0]
        waiting = chain([second], waiting)
    return _merged(first, waiting)


async def _merged(
    first: list[AsyncGenerator[T, None]], waiting: Iterator[AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    # Bounded, so that no source runs ahead of the reader.
    queue: asyncio.Queue[T | _Ended] = asyncio.Queue(maxsize=len(first))
    tasks = [asyncio.create_task(_drain(chain([source], waiting), queue)) for source in first]
    try:
        running = len(tasks)
        while running:
            got = await queue.get()
            if not isinstance(got, _Ended):
                yield got
            elif got.error is not None:
                raise got.error
            else:
                running -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(sources: Iterable[AsyncGenerator[T, None]], queue: asyncio.Queue[T | _Ended]) -> None:
    """Drains one source after the other, until none is left."""
    error: Exception | None = None
    try:
        for source in sources:
            async with aclosing(source):
                async for item in source:
                    await queue.put(item)
    except Exception as raised:  # `_merged` raises it
        error = raised
    await queue.put(_Ended(error))
