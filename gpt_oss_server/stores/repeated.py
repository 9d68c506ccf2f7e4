"""Work on a store that a server repeats in the event loop until it ends, whatever a repetition comes to."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gpt_oss_server.errors import StoreUnavailable

_log = logging.getLogger(__name__)


class Repeated:
    def __init__(self, work: Callable[[], Awaitable[object]], pause: float, problem: str) -> None:
        """`pause`: seconds between two repetitions. `problem`: a sentence without its end, for the log."""
        self._work = work
        self._pause = pause
        self._problem = problem
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Ends the pause: there may be work. Call it in the event loop."""
        self._woken.set()

    def start(self) -> None:
        """Call it in the event loop."""
        self._task = asyncio.create_task(self._repeat())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _repeat(self) -> None:
        while True:
            self._woken.clear()  # what comes during the work is for the next time
            try:
                await self._work()
            except StoreUnavailable as error:  # the next repetition does this one's work
                _log.warning("%s: %s", self._problem, error)
            except Exception:  # a defect must not end the repetitions, nor go unseen
                _log.exception("%s.", self._problem)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._pause)
