"""Waits for events outside the test's own task, with a time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_SECONDS = 20.0


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0)


async def until_found(
    look: Callable[[], Awaitable[T]], fits: Callable[[T], object], *, seconds: float = _SECONDS
) -> T:
    """Calls `look` until its result `fits`, and returns that result."""
    deadline = time.monotonic() + seconds
    while not fits(found := await look()):
        assert time.monotonic() < deadline, f"it did not happen: {found!r:.500}"
        await asyncio.sleep(0.001)
    return found
