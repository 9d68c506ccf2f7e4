"""Runs that outlive their connection: each is driven to its end, its events logged, and stopped by id.

In: runs, as batches of events numbered from 0 on. Out: the same events in the log of the run, from where any
number of readers get them. It must not know what the events say, how logs are kept, nor HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from gpt_oss_server.errors import EngineUnavailable
from gpt_oss_server.stores.events import EventLog, EventLogs

Event = dict[str, Any]
_TO_END = 5.0  # seconds that runs have to end by themselves once the engine is closed
_log = logging.getLogger(__name__)


class Running(Protocol):
    """A run that can be driven here."""

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


class BackgroundRun(Generic[R]):
    """One run, driven to its end."""

    def __init__(
        self,
        run: R,
        logs: EventLogs,
        encode: Callable[[Event], bytes],
        ended: Callable[[BackgroundRun[R]], None],
    ) -> None:
        self.run = run
        self._logs = logs
        self._encode = encode
        self._ended = ended
        self._logged = 0  # events that the log has
        self._pending: list[bytes] = []  # those that it may not have yet
        self._begun = asyncio.Event()
        self._stops = False
        self._task = asyncio.create_task(self._drive())

    async def stop(self) -> None:
        """Returns when the run has ended; a run that is ending anyway ends its own way."""
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
            if await self._cancelled_elsewhere():
                await self._record(await self.run.stopped())
        except asyncio.CancelledError:
            await self._record(await self.run.stopped())
        except Exception:  # a defect: nobody awaits the task, and readers must not wait for ever
            _log.exception("The background run %s broke.", self.run.id)
        finally:
            try:
                await self._logs.end(self.run.id)
            finally:
                self._ended(self)

    async def _cancelled_elsewhere(self) -> bool:
        """Records the events until the run has ended, or another process has asked to cancel it."""
        async with aclosing(self.run.events()) as events:
            async for batch in events:
                if await self._record(batch) and not self.run.ending and not self._stops:
                    self._stops = True
                    return True
        return False

    async def _record(self, events: list[Event]) -> bool:
        """Returns whether the run is to be cancelled. What a cancelled call leaves, the next one records."""
        self._pending += [self._encode(event) for event in events]
        cancelled = await self._logs.append(self.run.id, self._logged, self._pending)
        self._logged += len(self._pending)
        self._pending.clear()
        return cancelled


class BackgroundRuns(Generic[R]):
    """The runs of this process, by id, and the logs of all."""

    def __init__(self, encode: Callable[[Event], bytes], logs: EventLogs, *, max_running: int) -> None:
        self.logs = logs
        self._encode = encode
        self._max_running = max_running
        self._running: dict[str, BackgroundRun[R]] = {}
        self._starting = 0

    def check_room(self) -> None:
        running = len(self._running) + self._starting
        if running >= self._max_running:
            raise EngineUnavailable(
                f"{running} background responses run or wait already. Try again later, or start "
                "the server with a larger --background-max-runs."
            )

    async def start(self, run: R) -> EventLog:
        self.check_room()
        self._starting += 1
        try:
            log = await self.logs.begin(run.id)
        finally:
            self._starting -= 1
        self._running[run.id] = BackgroundRun(run, self.logs, self._encode, self._end)
        return log

    def running(self, run_id: str) -> R | None:
        found = self._running.get(run_id)
        return None if found is None else found.run

    async def stop(self, run_id: str) -> None:
        """A run of this process has ended when this returns; that of another process is marked."""
        found = self._running.get(run_id)
        if found is not None:
            await found.stop()
        else:
            await self.logs.request_cancel(run_id)

    async def close(self) -> None:
        """The engine is closed, so the runs end by themselves; those that do not are stopped."""
        running = list(self._running.values())
        await asyncio.gather(*(found.wait(_TO_END) for found in running))  # together: they may be many
        await asyncio.gather(*(found.stop() for found in running))

    def _end(self, ended: BackgroundRun[R]) -> None:
        """Only the log is kept: the run itself holds prompts and more."""
        del self._running[ended.run.id]
