"""The sessions of one tool, one per conversation, lent to one call at a time, and their lifetimes.

A session ends when it is idle or old, or when a newer conversation needs its place, but never while it is in
use. An owner may use only some of the places, and takes another's only after that was unused for a while.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tools.tool import NOBODY, Client, Session, Tool

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """When sessions end: seconds without a call, seconds since the first call, and their number."""

    idle: float = 1200.0
    age: float = 14_400.0
    count: int = 64
    per_owner: int = 64  # unless the client has a number of its own
    spared: float = 0.0  # seconds since its last use in which no session gives way to another owner's


class TooManySessions(Exception):
    """No session can make room; `of_owner` if this owner has as many as it may."""

    def __init__(self, *, of_owner: bool) -> None:
        super().__init__()
        self.of_owner = of_owner


@dataclass(slots=True)
class _Entry:
    session: Session
    owner: str
    opened: float
    used: float
    users: int = 0  # calls that run or wait
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    unusable: bool = False


class SessionPool:
    def __init__(self, tool: Tool, limits: SessionLimits, clock: Callable[[], float]) -> None:
        self._tool = tool
        self._limits = limits
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, conversation: str, client: Client = NOBODY) -> AsyncIterator[Session]:
        """Lends the conversation's session. Raises TooManySessions, or what the tool's `open` raises."""
        entry = self._entry(conversation, client, replaces=True)
        entry.users += 1
        try:
            async with entry.lock:
                yield entry.session
        finally:
            entry.users -= 1
            entry.used = self._clock()
            if entry.unusable and not entry.users:
                self._close_soon(entry)
            self._wake_later()

    def open(self, conversation: str, client: Client = NOBODY) -> Session:
        """The same for uses other than calls, such as adding files; a new session replaces no other."""
        entry = self._entry(conversation, client, replaces=False)
        entry.used = self._clock()  # otherwise an idle session could lose its place before this use
        self._wake_later()
        return entry.session

    def peek(self, conversation: str) -> Session | None:
        """The conversation's session, if there is one, to query it but not to run calls in it."""
        entry = self._entries.get(conversation)
        return entry.session if entry is not None else None

    def touch(self, conversation: str) -> None:
        """Keeps the session, if there is one, from ending as idle: something other than a call uses it."""
        if (entry := self._entries.get(conversation)) is not None:
            entry.used = self._clock()

    def conversations(self, owner: str | None = None) -> tuple[str, ...]:
        """The conversations that have a session, the oldest first; with `owner`, only this owner's."""
        self.sweep()
        return tuple(name for name, entry in self._entries.items() if owner in (None, entry.owner))

    def discard(self, conversation: str) -> None:
        """Ends a session whose state is not reliable; the next call gets a new one."""
        entry = self._entries.pop(conversation, None)
        if entry is None:
            return
        entry.unusable = True
        if not entry.users:
            self._close_soon(entry)

    def sweep(self) -> None:
        for conversation, entry in list(self._entries.items()):
            if self._expires(entry) <= self._clock() and not entry.users:
                self.discard(conversation)

    async def close(self) -> None:
        """Ends all sessions, including those in use. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            self._close_soon(entry)
        while self._closing:
            await asyncio.wait(set(self._closing))

    def _entry(self, conversation: str, client: Client, *, replaces: bool) -> _Entry:
        self.sweep()
        if (entry := self._entries.get(conversation)) is not None:
            return entry
        self._make_room(client, replaces=replaces)
        now = self._clock()
        entry = _Entry(self._tool.open(), client.name, opened=now, used=now)
        self._entries[conversation] = entry
        return entry

    def _make_room(self, client: Client, *, replaces: bool) -> None:
        own = {name: entry for name, entry in self._entries.items() if entry.owner == client.name}
        if len(own) >= (self._limits.per_owner if client.sessions is None else client.sessions):
            self._replace(own if replaces else {}, of_owner=True)
        if len(self._entries) >= self._limits.count:
            since = self._clock() - self._limits.spared
            others = {name: entry for name, entry in self._entries.items() if entry.used <= since}
            self._replace(own | others if replaces else {}, of_owner=False)

    def _replace(self, entries: Mapping[str, _Entry], *, of_owner: bool) -> None:
        """Ends the one of these that was unused for the longest time."""
        unused = [(entry.used, name) for name, entry in entries.items() if not entry.users]
        if not unused:
            raise TooManySessions(of_owner=of_owner)
        self.discard(min(unused)[1])

    def _expires(self, entry: _Entry) -> float:
        return min(entry.used + self._limits.idle, entry.opened + self._limits.age)

    def _wake_later(self) -> None:
        """Sets a timer for the first session that is due, because sessions must end in a quiet server too."""
        if self._timer is not None or not self._entries:
            return
        due = min(self._expires(entry) for entry in self._entries.values()) - self._clock()
        self._timer = asyncio.get_running_loop().call_later(max(due, 1.0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.sweep()
        self._wake_later()

    def _close_soon(self, entry: _Entry) -> None:
        """Closes in a task of its own: ending a kernel takes a while, and the next call should not wait."""
        task = asyncio.get_running_loop().create_task(_close(entry.session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(session: Session) -> None:
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await session.close()
    except Exception:
        _log.exception("A tool's session did not close cleanly")
