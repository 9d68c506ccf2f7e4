"""How late the event loop runs a timer that is due: all streams, requests and pings wait as long."""

from __future__ import annotations

import asyncio

from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures

_PAUSE = 0.25  # seconds


class LoopLag:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._wait(loop, loop.time())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        due = now + _PAUSE
        self._timer = loop.call_at(due, self._observe, loop, due)

    def _observe(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._figures.observe(table.LOOP_LAG, max(0.0, now - due))
        self._wait(loop, now)
