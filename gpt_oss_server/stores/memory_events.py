"""Event logs in memory, bounded in bytes and in age.

No run outlives the process, so nothing is kept to continue one. The logs of ended runs are dropped first,
beginning with the oldest; then the largest log forgets its beginning. A reader keeps a log that it has open,
even after the store has dropped it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

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
        self.cancelled = False  # somebody requested to cancel the run
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


class MemoryEventLogs:
    def __init__(self, *, max_bytes: int = 128 * 2**20, max_age: float = 600.0) -> None:
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._running: dict[str, _Log] = {}
        self._ended: OrderedDict[str, tuple[float, _Log]] = (
            OrderedDict()
        )  # with the time of its end; oldest first
        self.bytes = 0  # of all logs

    linger = 0.0

    async def begin(
        self,
        run_id: str,
        continuation: Continuation | None = None,
        *,
        owner: str = "",
        most: int | None = None,
    ) -> EventLog:
        self._forget_old()
        if most is not None and sum(log.owner == owner for log in self._running.values()) >= most:
            raise TooManyRuns(most)
        log = self._running[run_id] = _Log(owner)
        return log

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        log = self._running[run_id]
        before = log.bytes
        log.append(first, events)
        self.bytes += log.bytes - before
        if self.bytes > self._max_bytes:
            self._shrink()
        return log.cancelled

    async def end(self, run_id: str) -> None:
        log = self._running.pop(run_id)
        log.end()
        self._ended[run_id] = (time.monotonic(), log)

    async def open(self, run_id: str, owner: str = "") -> EventLog | None:
        self._forget_old()
        log = self._running.get(run_id)
        if log is None and run_id in self._ended:
            log = self._ended[run_id][1]
        return log if log is not None and log.owner == owner else None

    async def request_cancel(self, run_id: str, owner: str = "") -> None:
        if run_id in self._running and self._running[run_id].owner == owner:
            self._running[run_id].cancelled = True

    async def delete(self, run_id: str, owner: str = "") -> None:
        if run_id in self._ended and self._ended[run_id][1].owner == owner:
            self._drop(run_id)

    async def close(self) -> None:
        for run_id in list(self._ended):
            self._drop(run_id)

    def _drop(self, run_id: str) -> None:
        if run_id in self._ended:
            self.bytes -= self._ended.pop(run_id)[1].bytes

    def _shrink(self) -> None:
        while self.bytes > self._max_bytes and self._ended:
            self._drop(next(iter(self._ended)))
        while self.bytes > self._max_bytes and self._running:
            log = max(self._running.values(), key=lambda log: log.bytes)
            before = log.bytes
            log.forget_half()
            self.bytes += log.bytes - before

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._max_age
        while self._ended:
            run_id, (ended_at, _) = next(iter(self._ended.items()))
            if ended_at > oldest:
                return
            self._drop(run_id)


def _size(events: Sequence[bytes]) -> int:
    return sum(map(len, events)) + _PER_EVENT * len(events)
