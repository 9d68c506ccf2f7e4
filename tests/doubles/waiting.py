"""Waiting for what happens beside a test, with an end to the patience."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_PATIENCE = 20.0


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0)


async def until_found(look: Callable[[], Awaitable[T]], fits: Callable[[T], object]) -> T:
    """What `look` gives, once it is as it must be."""
    deadline = time.monotonic() + _PATIENCE
    while not fits(found := await look()):
        assert time.monotonic() < deadline, f"it did not happen: {found!r:.500}"
        await asyncio.sleep(0.001)
    return found
