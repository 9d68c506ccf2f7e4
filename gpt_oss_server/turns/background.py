"""Runs that outlive their connection: drives each run to its end, logs its events, and stops it by id.

Takes runs, as batches of events numbered from 0. Writes the same events to the run's log, which any number of
clients can read. It must not know what the events contain, how logs are stored, nor HTTP.
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
_END_SECONDS = 5.0  # that runs have to end by themselves once the engine is closed
_log = logging.getLogger(__name__)


class Running(Protocol):
    """A run that can be driven here."""

    @property
    def id(self) -> str: ...

    @property
    def ending(self) -> bool:
        """Whether its last event is being built, or has been."""
        ...

    def events(self) -> AsyncGenerator[list[Event], None]: ...

    async def stopped(self) -> list[Event]:
        """Returns the events that end the run after `events` was cancelled."""
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
        self._logged = 0  # how many events are in the log
        self._pending: list[bytes] = []  # events that may not be in the log yet
        self._begun = asyncio.Event()
        self._stops = False
        self._task = asyncio.create_task(self._drive())

    async def stop(self) -> None:
        """Returns when the run has ended. A run that is already ending is not cancelled."""
        await self._begun.wait()  # a task that is cancelled before it starts would not end its log
        if not self.run.ending and not self._stops:
            self._stops = True
            self._task.cancel()  # once: a second cancellation would interrupt a tool's clean-up
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
        except Exception:  # a defect: nothing awaits the task, and readers must not wait for ever
            _log.exception("The background run %s broke.", self.run.id)
        finally:
            try:
                await self._logs.end(self.run.id)
            finally:
                self._ended(self)

    async def _cancelled_elsewhere(self) -> bool:
        """Records the events until the run ends. Returns true if another process requested to cancel it."""
        async with aclosing(self.run.events()) as events:
            async for batch in events:
                if await self._record(batch) and not self.run.ending and not self._stops:
                    self._stops = True
                    return True
        return False

    async def _record(self, events: list[Event]) -> bool:
        """Returns whether to cancel the run. If this call is cancelled, the next one records its events."""
        self._pending += [self._encode(event) for event in events]
        cancelled = await self._logs.append(self.run.id, self._logged, self._pending)
        self._logged += len(self._pending)
        self._pending.clear()
        return cancelled


class BackgroundRuns(Generic[R]):
    """The runs of this process by id, and the logs of all runs."""

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
                f"{running} background responses are already running or waiting. Try again later, or start "
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
        """Waits for a run of this process to end; marks a run of another process as cancelled."""
        found = self._running.get(run_id)
        if found is not None:
            await found.stop()
        else:
            await self.logs.request_cancel(run_id)

    async def close(self) -> None:
        """Waits for the runs to end, as they do once the engine is closed, and stops those that do not."""
        running = list(self._running.values())
        await asyncio.gather(*(found.wait(_END_SECONDS) for found in running))  # together: they may be many
        await asyncio.gather(*(found.stop() for found in running))

    def _end(self, ended: BackgroundRun[R]) -> None:
        """Drops the run, which holds prompts and more; its log stays."""
        del self._running[ended.run.id]
