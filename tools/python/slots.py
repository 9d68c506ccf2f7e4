"""How many kernels may live at once, and who gives way.

In: sessions that want a kernel. Out: a place for each; where all are taken, the kernel that was unused for
longest is ended, and where all are at work, the session waits for one. Must not know of kernels.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Holder(Protocol):
    """A session that holds a place."""

    @property
    def busy(self) -> bool: ...

    @property
    def last_used(self) -> float: ...

    async def retire(self, reason: str) -> None:
        """Ends its kernel, which gives the place back."""
        ...


class Slots:
    """The places."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: set[Holder] = set()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def take(self, holder: Holder) -> None:
        """Returns with a place; one call after the other, so that two do not end the same kernel."""
        async with self._turn:
            while len(self._held) >= self._count:
                idle = [other for other in self._held if not other.busy]
                if idle:
                    oldest = min(idle, key=lambda other: other.last_used)
                    await oldest.retire("another conversation needed its place")
                    self._held.discard(oldest)
                else:
                    self._changed.clear()
                    await self._changed.wait()
            self._held.add(holder)

    def give(self, holder: Holder) -> None:
        self._held.discard(holder)
        self._changed.set()

    def rest(self) -> None:
        """A holder is no longer busy."""
        self._changed.set()
