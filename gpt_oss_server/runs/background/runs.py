"""Runs that outlive their connection: the runs of this process by id, and the logs of all runs.

Takes runs, as batches of events numbered from 0. Drives each to its end and stops it by id. It must not know
what the events contain, how logs are stored, nor HTTP.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gpt_oss_server.errors import EngineUnavailable, RateLimitExceeded
from gpt_oss_server.runs.background.driven import BackgroundRun, Event, Running
from gpt_oss_server.stores.events import Claimed, Continuation, TooManyRuns
from gpt_oss_server.stores.sql.events import EventLog, EventLogs

_END_SECONDS = 5.0  # that runs have to end by themselves once the engine is closed
_RETRY_SECONDS = 5.0  # after which a client may ask again for a place among its runs
R = TypeVar("R", bound=Running)


class BackgroundRuns(Generic[R]):
    """The runs of this process by id, and the logs of all runs."""

    def __init__(
        self,
        encode: Callable[[Event], bytes],
        logs: EventLogs,
        *,
        max_running: int,
        claims: EventLogs | None = None,
        over: Callable[[R], None] = lambda run: None,
    ) -> None:
        """`over` is called with each run once nothing more happens to it in this process."""
        self.logs = logs
        self.claims = claims
        self._encode = encode
        self._over = over
        self._max_running = max_running
        self._running: dict[str, BackgroundRun[R]] = {}
        self._starting = 0

    @property
    def count(self) -> int:
        """The number of runs of this process."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        return len(self._running) + self._starting < self._max_running

    def check_room(self) -> None:
        if not self.has_room:
            running = len(self._running) + self._starting
            raise EngineUnavailable(
                f"{running} background responses are already running or waiting. Try again later, or start "
                "the server with a larger --background-max-runs."
            )

    async def start(
        self, run: R, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        """`most`: how many of its owner's runs, this one included, may run in all processes together."""
        self.check_room()
        self._starting += 1
        try:
            log = await self.logs.of(run.owner).begin(run.id, continuation, most=most)
        except TooManyRuns as error:
            raise RateLimitExceeded(
                f"This API key has {error.most} background responses at work, as many as it may. Please try "
                "again when one has ended, or cancel one.",
                param="background",
                retry_after=_RETRY_SECONDS,
            ) from error
        finally:
            self._starting -= 1
        self._drive(run)
        return log

    def go_on(self, run: R, claimed: Claimed) -> None:
        """Continues a run whose first events are in the log."""
        self._drive(run, claimed.events)

    def running(self, run_id: str, owner: str = "") -> R | None:
        """The owner's run of this id, if it runs here."""
        held = self._running.get(run_id)
        return held.run if held is not None and held.run.owner == owner else None

    async def stop(self, run_id: str, owner: str = "") -> None:
        """Waits for a run of this process to end; marks a run of another process as cancelled."""
        held = self._running.get(run_id)
        if held is None:
            await self.logs.of(owner).request_cancel(run_id)
        elif held.run.owner == owner:
            await held.stop()

    async def stop_here(self, run_id: str) -> None:
        """Ends a run of this process, whoever its owner is."""
        if (held := self._running.get(run_id)) is not None:
            await held.stop()

    async def hand_over(self) -> None:
        """Lets other processes continue the runs, if there may be any."""
        if self.claims is not None:
            await asyncio.gather(*(run.hand_over() for run in list(self._running.values())))

    async def ended(self) -> None:
        """Returns when no run is left in this process."""
        while self._running:
            await asyncio.gather(*(run.wait() for run in list(self._running.values())))

    async def close(self) -> None:
        """Waits for the runs to end, as they do once the engine is closed, and stops those that do not."""
        running = list(self._running.values())
        await asyncio.gather(*(run.wait(_END_SECONDS) for run in running))  # together: they may be many
        await asyncio.gather(*(run.stop() for run in running))

    def _drive(self, run: R, logged: int = 0) -> None:
        self._running[run.id] = BackgroundRun(
            run, self.logs, self._encode, self._end, claims=self.claims, logged=logged
        )

    def _end(self, ended: BackgroundRun[R]) -> None:
        """Drops the run, which holds prompts and more; its log stays."""
        if self._running.get(ended.run.id) is ended:
            del self._running[ended.run.id]
        self._over(ended.run)
