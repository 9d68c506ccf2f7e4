"""HTTP clients that are made when first needed: on a thread, because that takes tens of milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A client, which `make` makes on a thread and `end` ends."""

    def __init__(self, make: Callable[[], T], end: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._end = end
        self._making = asyncio.Lock()
        self._client: T | None = None

    async def get(self) -> T:
        async with self._making:
            if self._client is None:
                self._client = await asyncio.to_thread(self._make)
            return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._end(client)
