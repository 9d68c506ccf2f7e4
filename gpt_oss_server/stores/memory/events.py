"""Event logs in memory, bounded in bytes and in age.

No run outlives the process, so nothing is kept to continue one. The logs of ended runs are dropped first,
beginning with the oldest; then the largest log forgets its beginning. A reader keeps a log that it has open,
even after the store has dropped it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from gpt_oss_server.stores.events import (
    NO_RECORDS,
    Continuation,
    EventLog,
    Records,
    TooManyRuns,
    events_forgotten,
)

_PER_EVENT = 60  # bytes of Python's overhead


class _Log:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._events: list[bytes] = []
        self._first = 0  # the number of the oldest event that is kept
        self._ended = False
        self._news = asyncio.Event()
        self.cancelled = False  # whether a client requested to cancel the run
        self.bytes = 0

    def append(self, first: int, events: Sequence[bytes]) -> None:
        known = self._first + len(self._events) - first
        if known < 0:
            raise ValueError(f"Event {first} is too early: {-known} events before it are missing.")
        new = events[known:]
        self._events += new
        self.bytes += _size(new)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def forget_half(self) -> None:
        half = (len(self._events) + 1) // 2
        self.bytes -= _size(self._events[:half])
        del self._events[:half]
        self._first += half

    async def check(self, after: int) -> None:
        self._check(after)

    async def read(self, after: int = -1) -> AsyncGenerator[list[bytes], None]:
        at = after + 1
        while True:
            self._check(at - 1)
            batch = self._events[at - self._first :]
            if batch:
                at += len(batch)
                yield batch
            elif self._ended:
                return
            else:
                await self._news.wait()

    def _check(self, after: int) -> None:
        if after + 1 < self._first:
            raise events_forgotten(self._first)

    def _wake(self) -> None:
        self._news.set()  # wakes the waiting readers; later ones wait for the next event
        self._news = asyncio.Event()


@dataclass(slots=True)
class _Logs:
    """The logs of all owners."""

    running: dict[str, _Log] = field(default_factory=dict)
    ended: OrderedDict[str, tuple[float, _Log]] = field(default_factory=OrderedDict)  # by the time of the end
    bytes: int = 0


class MemoryEventLogs:
    linger = 0.0

    def __init__(self, *, max_bytes: int = 128 * 2**20, max_age: float = 600.0) -> None:
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._logs = _Logs()
        self._owner = ""

    def of(self, owner: str) -> MemoryEventLogs:
        if owner == self._owner:
            return self
        seen = copy.copy(self)  # shares all but the owner
        seen._owner = owner
        return seen

    @property
    def used_bytes(self) -> int:
        return self._logs.bytes

    async def begin(
        self, run_id: str, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        self._forget_old()
        running = self._logs.running
        if most is not None and sum(log.owner == self._owner for log in running.values()) >= most:
            raise TooManyRuns(most)
        log = running[run_id] = _Log(self._owner)
        return log

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        log = self._logs.running[run_id]
        before = log.bytes
        log.append(first, events)
        self._logs.bytes += log.bytes - before
        if self.used_bytes > self._max_bytes:
            self._shrink()
        return log.cancelled

    async def end(self, run_id: str) -> None:
        log = self._logs.running.pop(run_id)
        log.end()
        self._logs.ended[run_id] = (time.monotonic(), log)

    async def open(self, run_id: str) -> EventLog | None:
        self._forget_old()
        return self._own(self._logs.running.get(run_id)) or self._ended(run_id)

    async def request_cancel(self, run_id: str) -> None:
        if (log := self._own(self._logs.running.get(run_id))) is not None:
            log.cancelled = True

    async def delete(self, run_id: str) -> None:
        if self._ended(run_id) is not None:
            self._drop(run_id)

    async def close(self) -> None:
        for run_id in list(self._logs.ended):
            self._drop(run_id)

    def _ended(self, run_id: str) -> _Log | None:
        return self._own(self._logs.ended.get(run_id, (0.0, None))[1])

    def _own(self, log: _Log | None) -> _Log | None:
        return log if log is not None and log.owner == self._owner else None

    def _drop(self, run_id: str) -> None:
        self._logs.bytes -= self._logs.ended.pop(run_id)[1].bytes

    def _shrink(self) -> None:
        while self.used_bytes > self._max_bytes and self._logs.ended:
            self._drop(next(iter(self._logs.ended)))
        while self.used_bytes > self._max_bytes and self._logs.running:
            log = max(self._logs.running.values(), key=lambda log: log.bytes)
            before = log.bytes
            log.forget_half()
            self._logs.bytes += log.bytes - before

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._max_age
        while self._logs.ended:
            run_id, (ended_at, _) = next(iter(self._logs.ended.items()))
            if ended_at > oldest:
                return
            self._drop(run_id)


def _size(events: Sequence[bytes]) -> int:
    return sum(map(len, events)) + _PER_EVENT * len(events)
