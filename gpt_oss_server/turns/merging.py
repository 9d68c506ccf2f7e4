"""Merges the streams of choices that run concurrently, in the order in which their items arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended:
    error: Exception | None


def merged(sources: Sequence[AsyncGenerator[T, None]], limit: int | None = None) -> AsyncGenerator[T, None]:
    """All items of all sources. The first failure ends all sources and is raised; closing closes them all.

    At most `limit` sources run at the same time. The others start as these end.
    """
    return sources[0] if len(sources) == 1 else _merged(sources, limit)


async def _merged(sources: Sequence[AsyncGenerator[T, None]], limit: int | None) -> AsyncGenerator[T, None]:
    # Bounded, so that no source runs ahead of the reader.
    queue: asyncio.Queue[T | _Ended] = asyncio.Queue(maxsize=len(sources))
    gate = asyncio.Semaphore(limit or len(sources))
    tasks = [asyncio.create_task(_drain(source, queue, gate)) for source in sources]
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


async def _drain(
    source: AsyncGenerator[T, None], queue: asyncio.Queue[T | _Ended], gate: asyncio.Semaphore
) -> None:
    error: Exception | None = None
    try:
        async with gate, aclosing(source):
            async for item in source:
                await queue.put(item)
    except Exception as raised:  # `_merged` raises it
        error = raised
    await queue.put(_Ended(error))
