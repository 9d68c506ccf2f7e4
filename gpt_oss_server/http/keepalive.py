"""Keeps a silent stream alive while a prompt is read, a tool runs, or other requests come first.

Takes an iterator of batches, a function that writes one, and a function that writes a heartbeat. Writes the
batches in order, and a heartbeat after each `every` seconds of silence. It must not know events or
transports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def pump(
    batches: AsyncGenerator[T, None],
    write: Callable[[T], Awaitable[None]],
    beat: Callable[[], Awaitable[None]],
    every: float | None,
) -> None:
    """Writes every batch, and calls `beat` in each silence. Always closes the batches."""
    if every is None:
        async with aclosing(batches):
            async for batch in batches:
                await write(batch)
        return
    silence = _Silence(beat, every)
    watch = asyncio.create_task(silence.watch())
    try:
        async with aclosing(batches):
            async for batch in batches:
                async with silence:
                    await write(batch)
    finally:
        watch.cancel()
        [outcome] = await asyncio.gather(watch, return_exceptions=True)
    if isinstance(outcome, Exception):  # a heartbeat failed; a cancellation is not an Exception
        raise outcome


class _Silence:
    """The time of the last write, and a lock, so that a beat and a batch are never written concurrently."""

    def __init__(self, beat: Callable[[], Awaitable[None]], every: float) -> None:
        self._beat = beat
        self._every = every
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._writing.acquire()

    async def __aexit__(self, *raised: object) -> None:
        self._since = self._clock()
        self._writing.release()

    async def watch(self) -> None:
        while True:
            # Writing a batch to a slow client is not silence.
            due = self._since + self._every if not self._writing.locked() else self._clock() + self._every
            if (wait := due - self._clock()) > 0:
                await asyncio.sleep(wait)
                continue
            async with self:
                await self._beat()
