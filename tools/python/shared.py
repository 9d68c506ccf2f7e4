"""Bounds what sessions hold together: the number of their kernels, and the memory of kernels and files.

Ends idle kernels, the longest unused first, until there is room. `Slots` lets a session wait while all
kernels are busy; `SharedMemory` raises `NoMemoryLeft`. An owner's sessions may have a limit of their own;
such kernels are also checked while they run, by the watchdog's figures: idle ones end first, then the one
that holds the most.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from tools.python.sandboxes.bounds.host_memory import host_memory
from tools.python.sandboxes.bounds.limits import MIB
from tools.python.sandboxes.bounds.watchdog import INTERVAL
from tools.python.sandboxes.folder import FileRefused
from tools.tool import Client

_OF_MACHINE, _LEAST = 4, 2048 * MIB
FOR_A_KERNEL = 96 * MIB  # what one takes before any code has run
_NEEDED = "other conversations needed its memory"
_ALL = "all conversations together hold {} MiB of memory, the most that python may use here"
_OWN = "the conversations of this client hold {} MiB of memory, the most that they may"
_BEYOND = "the conversations of this client held more than {} MiB of memory, the most that they may"


class NoMemoryLeft(FileRefused):
    """The sessions hold as much memory as they may; the message states what to do."""


class Holder(Protocol):
    owner: str

    @property
    def held(self) -> int: ...  # bytes of memory

    @property
    def alive(self) -> bool: ...  # whether it has a kernel

    @property
    def retirable(self) -> bool: ...  # whether its kernel is idle

    @property
    def last_used(self) -> float: ...

    async def retire(self, reason: str) -> None: ...  # ends its idle kernel

    async def kill(self, reason: str) -> None: ...  # ends its kernel even if code runs, and frees its memory


class Slots:
    def __init__(self, count: int) -> None:
        self._count = count
        self._holders: set[Holder] = set()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def take(self, holder: Holder) -> None:
        """Waits for a place. Calls are served one after the other, so that no two end the same kernel."""
        async with self._turn:
            while len(self._holders) >= self._count:
                if oldest := _longest_unused(self._holders):
                    await oldest.retire("another conversation needed its place")
                    self._holders.discard(oldest)
                else:
                    self._changed.clear()
                    await self._changed.wait()
            self._holders.add(holder)

    def give(self, holder: Holder) -> None:
        self._holders.discard(holder)
        self._changed.set()

    def rest(self) -> None:
        self._changed.set()


class SharedMemory:
    def __init__(self, limit: int | None, sessions: Collection[Holder]) -> None:
        memory = host_memory()
        quarter = max(_LEAST, memory.total // _OF_MACHINE if memory else 0)
        self._limit = quarter if limit is None else limit
        self._sessions = sessions
        self._limits: dict[str, int] = {}  # by owner, as of the last call of `owner`
        self._starting: set[Holder] = set()  # their kernels hold no memory yet
        self._turn = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None

    def owner(self, client: Client) -> str:
        """The name of the client, whose present limit is in force afterwards."""
        if client.memory is None:
            self._limits.pop(client.name, None)
        else:
            self._limits[client.name] = client.memory
        return client.name

    def owners_limit(self, owner: str) -> int | None:
        return self._limits.get(owner)

    @asynccontextmanager
    async def room_for_a_file(self, size: int, session: Holder) -> AsyncIterator[None]:
        """Enters when a file is within the limits. No other session gets room before it is written."""
        async with self._turn:
            await self._make_room(size, session)
            yield

    @asynccontextmanager
    async def room_for_a_kernel(self, session: Holder) -> AsyncIterator[None]:
        """Enters when a kernel is within the limits, and counts it while it starts."""
        async with self._turn:
            await self._make_room(FOR_A_KERNEL, session)
            self._starting.add(session)
        try:
            yield
        finally:
            self._starting.discard(session)

    def kernel_started(self) -> None:
        """Checks the sums of owners with a limit for as long as any of their kernels lives."""
        if self._limits and (self._checking is None or self._checking.done()):
            self._checking = asyncio.get_running_loop().create_task(self._check_repeatedly())

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait({self._checking})

    async def _make_room(self, need: int, session: Holder) -> None:
        limit = self._limits.get(session.owner)
        if limit is not None:
            await self._end_idle_kernels(need, session, self._owners(session.owner), limit, _OWN)
        await self._end_idle_kernels(need, session, self._sessions, self._limit, _ALL)

    async def _end_idle_kernels(
        self, need: int, session: Holder, sessions: Collection[Holder], limit: int, full: str
    ) -> None:
        while _held(sessions) + FOR_A_KERNEL * len(self._starting.intersection(sessions)) + need > limit:
            idle = _longest_unused(other for other in sessions if other is not session)
            if idle is None:
                full = full.format(limit // MIB)
                raise NoMemoryLeft(f"{full}; delete files or containers, or try again later")
            await idle.retire(_NEEDED)

    async def _check_repeatedly(self) -> None:
        while owners := {session.owner for session in self._sessions if session.alive} & self._limits.keys():
            for owner in owners:
                await self._check(owner)
            await asyncio.sleep(INTERVAL)

    async def _check(self, owner: str) -> None:
        """Ends one kernel of an owner whose sessions hold too much; the next check may end another."""
        limit, sessions = self._limits.get(owner), self._owners(owner)
        if limit is None or _held(sessions) <= limit:
            return
        if idle := _longest_unused(sessions):
            await idle.retire(_NEEDED)
        elif running := [session for session in sessions if session.alive]:
            heaviest = max(running, key=lambda session: session.held)
            await heaviest.kill(_BEYOND.format(limit // MIB))

    def _owners(self, owner: str) -> list[Holder]:
        return [session for session in self._sessions if session.owner == owner]


def _held(sessions: Collection[Holder]) -> int:
    return sum(session.held for session in sessions)


def _longest_unused(sessions: Iterable[Holder]) -> Holder | None:
    """The session with an idle kernel that was unused for the longest time."""
    idle = (session for session in sessions if session.retirable)
    return min(idle, key=lambda session: session.last_used, default=None)
