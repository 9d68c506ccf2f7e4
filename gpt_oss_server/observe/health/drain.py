"""The drain: not ready first, then no new connections, then the end of what is late.

1. `begin`: `/ready` answers 503, and everything else is served for the delay, so that balancers notice.
2. `run`: for the grace period, what has begun may end, background runs included.
3. What is late: background runs go to other servers where the store allows it. All other work fails, with a
   terminal event for its client.
"""

import asyncio
import logging
import time
from enum import IntEnum
from typing import Any, Protocol

from gpt_oss_server.observe.health.state import Health

_log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """How a server ended. A second signal ends it with 128 and the signal's number."""

    IN_TIME = 0  # all work ended within the grace period
    ENGINE_FAILED = 3  # with --exit-on-engine-failure
    LATE = 4  # work was left at the end of the grace period, and has failed


class BackgroundWork(Protocol):
    async def drained(self) -> None:
        """Returns when no background work is left."""

    async def end_late_work(self) -> int:
        """Hands background work over, and ends all other work; returns how much could not be handed over."""


class Drain:
    def __init__(self, *, grace: float) -> None:
        self.code = ExitCode.IN_TIME
        self._grace = grace
        self._due: float | None = None  # when the server closes its listening socket

    @property
    def has_begun(self) -> bool:
        return self._due is not None

    @property
    def is_due(self) -> bool:
        """Whether the server should stop listening now."""
        return self._due is not None and time.monotonic() >= self._due

    def begin(self, health: Health | None, *, delay: float) -> None:
        """`health` is None while the application is still being made."""
        if health is not None:
            health.draining = True
        self._due = time.monotonic() + delay

    def begin_after_failure(self, health: Health) -> None:
        """The engine cannot generate: nothing that waits for it would end."""
        self.code, self._grace = ExitCode.ENGINE_FAILED, 0.0
        self.begin(health, delay=0.0)

    async def run(self, work: BackgroundWork, tasks: set[asyncio.Task[Any]]) -> None:
        """Call it once the server listens no more; `tasks` are its running requests, for which it waits."""
        waiting = asyncio.create_task(work.drained())
        tasks.add(waiting)
        waiting.add_done_callback(tasks.discard)
        await asyncio.sleep(self._grace)
        self._count_late(len(tasks - {waiting}), "requests")
        self._count_late(await work.end_late_work(), "background responses")

    def _count_late(self, count: int, what: str) -> None:
        if not count:
            return
        _log.warning("The grace period of %g s is over. Late %s, which fail: %d.", self._grace, what, count)
        if self.code is ExitCode.IN_TIME:
            self.code = ExitCode.LATE
