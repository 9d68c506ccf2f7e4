"""Bounds the memory that all sessions hold together: their kernels, and the files that ended kernels left.

Takes sessions and a need in bytes. Ends idle kernels, the longest unused first, until there is room, or
raises `NoMemoryLeft`. The watchdog bounds each box on its own; a session that runs is never ended here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from tools.python.sandboxes.bounds.host_memory import host_memory
from tools.python.sandboxes.bounds.limits import MIB
from tools.python.sandboxes.folder import FileRefused

_OF_MACHINE, _LEAST = 4, 2048 * MIB
FOR_A_KERNEL = 96 * MIB  # what one takes before any code has run


class NoMemoryLeft(FileRefused):
    """The sessions hold as much memory as they may; the message states what to do."""


class Holder(Protocol):
    """A session."""

    @property
    def held(self) -> int:
        """The bytes of memory that it holds."""
        ...

    @property
    def retirable(self) -> bool:
        """Whether it has a kernel that is idle."""
        ...

    @property
    def last_used(self) -> float: ...

    async def retire(self, reason: str) -> None: ...


class SharedMemory:
    def __init__(self, limit: int | None, sessions: Collection[Holder]) -> None:
        self._limit = _quarter() if limit is None else limit
        self._sessions = sessions
        self._turn = asyncio.Lock()

    async def make_room(self, need: int, asking: Holder) -> None:
        """Returns when `need` bytes more are within the limit."""
        async with self._turn:
            while self._held() + need > self._limit:
                idle = [each for each in self._sessions if each.retirable and each is not asking]
                if not idle:
                    raise NoMemoryLeft(
                        f"all conversations together hold {self._limit // MIB} MiB of memory, the most that "
                        "python may use here; delete files or containers, or try again later"
                    )
                longest = min(idle, key=lambda each: each.last_used)
                await longest.retire("other conversations needed its memory")

    def _held(self) -> int:
        return sum(each.held for each in self._sessions)


def _quarter() -> int:
    memory = host_memory()
    return max(_LEAST, memory.total // _OF_MACHINE if memory else 0)
