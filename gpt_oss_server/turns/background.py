"""Runs that outlive their connection: what they tell is logged, read from any point on, and stopped by id.

In: runs, as batches of events numbered from 0 on. Out: the same events as the bytes they are sent as, to any
number of readers at once, from after any number; a reader that has caught up goes on live. Logs are bounded
in bytes and in age. It must not know what the events say, nor HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from gpt_oss_server.errors import EngineUnavailable, EventsForgotten

Event = dict[str, Any]
_PER_EVENT = 60  # bytes that Python takes for an event beside its own
_TO_END = 5.0  # seconds that runs have to end by themselves once the engine is closed
_log = logging.getLogger(__name__)


class Running(Protocol):
    """What is run here."""

    @property
    def id(self) -> str: ...

    @property
    def ending(self) -> bool:
        """Whether its last event is being made, or has been."""
        ...

    def events(self) -> AsyncGenerator[list[Event], None]: ...

    async def stopped(self) -> list[Event]:
        """After `events` was cancelled: the events that end it."""
        ...


R = TypeVar("R", bound=Running)


class EventLog:
    """The events of one run, each as the bytes that are sent."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._first = 0  # the number of the oldest event that is still here
        self._ended = False
        self._news = asyncio.Event()
        self.bytes = 0

    def append(self, events: Sequence[bytes]) -> None:
        self._events += events
        self.bytes += _size(events)
        self._tell()

    def end(self) -> None:
        self._ended = True
        self._tell()

    def forget_half(self) -> None:
        """The older half of the events goes."""
        half = (len(self._events) + 1) // 2
        self.bytes -= _size(self._events[:half])
        del self._events[:half]
        self._first += half

    def check(self, after: int) -> None:
        """Whether the events after number `after` are all here."""
        if after + 1 < self._first:
            raise EventsForgotten(
                f"The events up to number {self._first - 1} are no longer kept: there were too many. "
                "Retrieve the response without `stream` once it has ended.",
                param="starting_after",
            )

    async def read(self, after: int = -1) -> AsyncGenerator[list[bytes], None]:
        """The events after number `after`, in batches, until the run has ended."""
        at = after + 1
        while True:
            self.check(at - 1)
            batch = self._events[at - self._first :]
            if batch:
                at += len(batch)
                yield batch
            elif self._ended:
                return
            else:
                await self._news.wait()

    def _tell(self) -> None:
        self._news.set()  # who waits is woken; who comes later waits for the next
        self._news = asyncio.Event()


class BackgroundRun(Generic[R]):
    """One that runs, and its log."""

    def __init__(
        self,
        run: R,
        record: Callable[[EventLog, list[Event]], None],
        ended: Callable[[BackgroundRun[R]], None],
    ) -> None:
        self.run = run
        self.log = EventLog()
        self._record = record
        self._ended = ended
        self._begun = asyncio.Event()
        self._stops = False
        self._task = asyncio.create_task(self._drive())

    async def stop(self) -> None:
        """Returns when it has ended; one that is ending anyway ends its own way."""
        await self._begun.wait()  # a task that is cancelled before it begins would not end its log
        if not self.run.ending and not self._stops:
            self._stops = True
            self._task.cancel()  # once: a second time would cut short what a tool does to stop
        await asyncio.wait({self._task})

    async def wait(self, seconds: float) -> None:
        await asyncio.wait({self._task}, timeout=seconds)

    async def _drive(self) -> None:
        self._begun.set()
        try:
            async with aclosing(self.run.events()) as events:
                async for batch in events:
                    self._record(self.log, batch)
        except asyncio.CancelledError:
            self._record(self.log, await self.run.stopped())
        except Exception:  # a defect: nobody is there to raise it to, and readers must not wait for ever
            _log.exception("The background run %s broke.", self.run.id)
        finally:
            self.log.end()
            self._ended(self)


class BackgroundRuns(Generic[R]):
    """All of them by id: those that run, and the logs of those that have ended, while they are kept."""

    def __init__(
        self, encode: Callable[[Event], bytes], *, max_running: int, max_bytes: int, max_age: float
    ) -> None:
        self._encode = encode
        self._max_running = max_running
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._running: dict[str, BackgroundRun[R]] = {}
        self._ended: OrderedDict[str, tuple[float, EventLog]] = OrderedDict()  # when it did; oldest first
        self.bytes = 0  # of all logs

    def check_room(self) -> None:
        if len(self._running) >= self._max_running:
            raise EngineUnavailable(
                f"{len(self._running)} background responses run or wait already. Try again later, or start "
                "the server with a larger --background-max-runs."
            )

    def start(self, run: R) -> EventLog:
        self.check_room()
        self._forget_old()
        started = self._running[run.id] = BackgroundRun(run, self._record, self._end)
        return started.log

    def running(self, run_id: str) -> R | None:
        found = self._running.get(run_id)
        return None if found is None else found.run

    def log(self, run_id: str) -> EventLog | None:
        self._forget_old()
        if run_id in self._running:
            return self._running[run_id].log
        return self._ended[run_id][1] if run_id in self._ended else None

    async def stop(self, run_id: str) -> None:
        """Returns when it runs no more."""
        found = self._running.get(run_id)
        if found is not None:
            await found.stop()

    def forget(self, run_id: str) -> None:
        """The log of one that has ended goes."""
        if run_id in self._ended:
            self.bytes -= self._ended.pop(run_id)[1].bytes

    async def close(self) -> None:
        """The engine is closed, so they end by themselves; one that does not is stopped."""
        running = list(self._running.values())
        await asyncio.gather(*(found.wait(_TO_END) for found in running))  # together: they may be many
        await asyncio.gather(*(found.stop() for found in running))
        for run_id in list(self._ended):
            self.forget(run_id)

    def _record(self, log: EventLog, events: list[Event]) -> None:
        before = log.bytes
        log.append([self._encode(event) for event in events])
        self.bytes += log.bytes - before
        if self.bytes > self._max_bytes:
            self._shrink()

    def _end(self, ended: BackgroundRun[R]) -> None:
        """Only the log is kept: the run itself holds prompts and more."""
        del self._running[ended.run.id]
        self._ended[ended.run.id] = (time.monotonic(), ended.log)

    def _shrink(self) -> None:
        """Logs of ended runs go first, oldest first; then the largest of all forgets its beginning."""
        while self.bytes > self._max_bytes and self._ended:
            self.forget(next(iter(self._ended)))
        while self.bytes > self._max_bytes and self._running:
            log = max((run.log for run in self._running.values()), key=lambda log: log.bytes)
            before = log.bytes
            log.forget_half()
            self.bytes += log.bytes - before

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._max_age
        while self._ended:
            run_id, (ended_at, _) = next(iter(self._ended.items()))
            if ended_at > oldest:
                return
            self.forget(run_id)


def _size(events: Sequence[bytes]) -> int:
    return sum(map(len, events)) + _PER_EVENT * len(events)
