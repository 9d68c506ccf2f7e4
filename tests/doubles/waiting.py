"""Waits for events outside the test's own task, with a time limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_SECONDS = 120.0  # a busy machine may stop a test for many


async def until(holds: Callable[[], object]) -> None:
    deadline, turns = time.monotonic() + _SECONDS, 0
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        turns += 1
        await asyncio.sleep(0 if turns < 1_000 else 0.005)  # it leaves the processor to what it waits for


def waited(
    look: Callable[[], T],
    fits: Callable[[T], object],
    seconds: float = _SECONDS,
    otherwise: str = "it did not happen",
) -> T:
    """Calls `look` until its result `fits`, in a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not fits(found := look()):
        assert time.monotonic() < deadline, f"{otherwise}: {found!r:.500}"
        time.sleep(0.01)
    return found


def wait_until(holds: Callable[[], T], otherwise: str = "it did not happen") -> T:
    """The first true result, for a test without an event loop."""
    return waited(holds, bool, otherwise=otherwise)


async def until_found(
    look: Callable[[], Awaitable[T]], fits: Callable[[T], object], *, seconds: float = _SECONDS
) -> T:
    """Calls `look` until its result `fits`, and returns that result."""
    deadline = time.monotonic() + seconds
    while not fits(found := await look()):
        assert time.monotonic() < deadline, f"it did not happen: {found!r:.500}"
        await asyncio.sleep(0.001)
    return found
