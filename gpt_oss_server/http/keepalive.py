"""A stream that is silent for long is kept alive: a prompt is read, a tool runs, or other requests go first.

In: batches as they come, a way to write one, and what to write in a silence. Out: the batches, written in
their order, with a sign of life wherever nothing came for `every` seconds. It knows neither events nor
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
    """Write every batch, and call `beat` in each silence. The batches are always closed."""
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
    if isinstance(outcome, Exception):  # it could not write; a cancellation is no Exception
        raise outcome


class _Silence:
    """How long nothing has been written, and a lock: a beat and a batch are never written at once."""

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
            # A batch that is being written to a slow client is no silence.
            due = self._since + self._every if not self._writing.locked() else self._clock() + self._every
            if (wait := due - self._clock()) > 0:
                await asyncio.sleep(wait)
                continue
            async with self:
                await self._beat()
