"""When a request arrived: waiting times count from then, not from when its work begins."""

from __future__ import annotations

import time
from contextvars import ContextVar

ARRIVED: ContextVar[float | None] = ContextVar("arrived", default=None)
"""By `time.monotonic`. `Edge` sets it, and so does a WebSocket's lane for each of its requests."""


def arrived() -> float:
    """The time of the current request; now, outside of any."""
    known = ARRIVED.get()
    return time.monotonic() if known is None else known
