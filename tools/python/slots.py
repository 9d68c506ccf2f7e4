"""Limits how many kernels may live at the same time, and chooses which one gives way.

Takes sessions that need a kernel, and gives each a place. If all places are taken, the kernel that was unused
for the longest time ends; if all kernels are busy, the session waits. It must not know kernels.
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
        """Ends its kernel, which releases the place."""
        ...


class Slots:
    def __init__(self, count: int) -> None:
        self._count = count
        self._held: set[Holder] = set()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def take(self, holder: Holder) -> None:
        """Waits for a place. Calls are served one after the other, so that no two end the same kernel."""
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
        """Announces that a holder is no longer busy."""
        self._changed.set()
