"""One run that outlives its connection: drives it to its end and writes its events to its log.

Takes a run, as batches of events numbered from 0. A run that was begun elsewhere repeats its first events,
which the log has already. Events are logged together with what it takes to continue the run after them, so
that whatever a reader has seen stays true. It must not know what the events contain, nor how logs are stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.runs.background.tape import HandedOver, Tape
from gpt_oss_server.stores.events import LeaseLost, Records
from gpt_oss_server.stores.sql.events import EventLogs

Event = dict[str, Any]
_MOST_PENDING = 4_096  # events that wait for the store, before the run waits too
_PAUSE = 1.0  # seconds before a store that does not answer is asked again
_log = logging.getLogger(__name__)


class Running(Protocol):
    """A run that can be driven here."""

    @property
    def id(self) -> str: ...

    @property
    def owner(self) -> str:
        """Whose run it is."""
        ...

    @property
    def ending(self) -> bool:
        """Whether its last event is being built, or has been."""
        ...

    @property
    def tape(self) -> Tape | None:
        """What it takes from outside; None: no other process can continue it."""
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
        *,
        claims: EventLogs | None = None,
        logged: int = 0,
    ) -> None:
        """`logged`: how many of its events the log has already."""
        self.run = run
        self._claims = claims
        self._encode = encode
        self._ended = ended
        self._writer = _Writer(run, logs, self._cancel_here)
        self._repeated = logged  # events that are still to be repeated
        self._writer.logged = logged
        self._begun = asyncio.Event()
        self._caught_up = asyncio.Event()  # the run no longer repeats what it did elsewhere
        self._stops = self._hands_over = False
        if run.tape is not None:
            run.tape.flush = self._writer.flush
        self._task = asyncio.create_task(self._drive())

    async def stop(self) -> None:
        """Returns when the run has ended. A run that is already ending is not cancelled."""
        await self._begun.wait()  # a task that is cancelled before it starts would not end its log
        await self._caught_up.wait()  # the events of its end follow those of the log
        self._cancel_here()
        await asyncio.wait({self._task})

    async def hand_over(self) -> None:
        """Returns when another process may continue the run, or when it has ended."""
        await self._begun.wait()
        if not self.run.ending and not self._stops and self.run.tape is not None:
            self._stops = self._hands_over = True
            self._task.cancel()
        await asyncio.wait({self._task})

    async def wait(self, seconds: float | None = None) -> None:
        await asyncio.wait({self._task}, timeout=seconds)

    def _cancel_here(self) -> None:
        if not self.run.ending and not self._stops:
            self._stops = True
            self._task.cancel()  # once: a second cancellation would interrupt a tool's clean-up

    async def _drive(self) -> None:
        self._begun.set()
        goes_on_elsewhere = False
        try:
            async with aclosing(self.run.events()) as events:
                async for batch in events:
                    await self._record(batch)
        except asyncio.CancelledError:
            goes_on_elsewhere = self._hands_over or self._writer.lost
            if not goes_on_elsewhere:
                try:
                    await self._record(await self.run.stopped())
                except LeaseLost:
                    goes_on_elsewhere = True
        except (LeaseLost, HandedOver):
            goes_on_elsewhere = True
        except Exception:  # a defect: nothing awaits the task, and readers must not wait for ever
            _log.exception("The background run %s broke.", self.run.id)
        finally:
            self._caught_up.set()
            try:
                await self._finish(goes_on_elsewhere)
            finally:
                self._ended(self)

    async def _record(self, events: list[Event]) -> None:
        skipped = min(self._repeated, len(events))
        self._repeated -= skipped
        tape = self.run.tape
        if not self._repeated and (tape is None or not tape.replays):
            self._caught_up.set()
        await self._writer.add([self._encode(event) for event in events[skipped:]])

    async def _finish(self, goes_on_elsewhere: bool) -> None:
        try:
            await self._writer.flush()
        except LeaseLost:
            goes_on_elsewhere = True
        except Exception:  # a defect; the log must end nevertheless
            _log.exception("The last events of the background run %s are lost.", self.run.id)
        if not goes_on_elsewhere:
            await _until_stored(lambda: self._writer.logs.end(self.run.id))
        elif self._claims is not None:
            claims = self._claims
            await _until_stored(lambda: claims.give_back(self.run.id))


class _Writer:
    """Writes a run's events and records to its log, one append at a time, and at most one per linger."""

    def __init__(self, run: Running, logs: EventLogs, cancel: Callable[[], None]) -> None:
        self.logs = logs
        self.logged = 0  # how many events are in the log
        self.lost = False
        self._run = run
        self._cancel = cancel
        self._events: list[bytes] = []  # that may not be in the log yet
        self._records: list[bytes] = []
        self._recorded = 0 if run.tape is None else run.tape.count
        self._appending = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None

    async def add(self, events: list[bytes]) -> None:
        """Raises `LeaseLost` if the run belongs to another process."""
        self._events += events
        if not self.logs.linger or len(self._events) > _MOST_PENDING:
            await self.flush()
        elif self.lost:
            raise LeaseLost(self._run.id)
        elif self._later is None or self._later.done():
            self._later = asyncio.create_task(self._flush_repeatedly())

    async def flush(self) -> None:
        """Returns when all events and records so far are stored."""
        async with self._appending:
            await _until_stored(self._append)

    async def _flush_repeatedly(self) -> None:
        """The first events immediately, and then those of each linger together, until there are none."""
        try:
            while self._events:
                await self.flush()
                await asyncio.sleep(self.logs.linger)
        except LeaseLost:
            self._cancel()  # a run that samples nothing would not notice

    async def _append(self) -> None:
        """If this call is cancelled, the next one repeats it: the log skips what it has."""
        if self.lost:
            raise LeaseLost(self._run.id)
        if self._run.tape is not None:
            self._records += self._run.tape.take()
        events, records = len(self._events), len(self._records)
        if not events and not records:
            return
        try:
            cancelled = await self.logs.append(
                self._run.id,
                self.logged,
                self._events[:events],
                Records(self._recorded, self._records[:records]),
            )
        except LeaseLost:
            self.lost = True
            raise
        self.logged += events
        self._recorded += records
        del self._events[:events], self._records[:records]
        if cancelled:
            self._cancel()


async def _until_stored(write: Callable[[], Any]) -> None:
    """Repeats the write while the store does not answer: the run has nowhere else to go."""
    while True:
        try:
            await write()
            return
        except StoreUnavailable as error:
            _log.warning("%s The background run waits.", error)
            await asyncio.sleep(_PAUSE)
