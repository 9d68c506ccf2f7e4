"""Work on a file that a process holds by a lease, which is extended meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def while_held(
    hold: Callable[[], Awaitable[bool]], lease: float, work: Coroutine[Any, Any, T]
) -> T | None:
    """The work's result; None, and the work is cancelled: the file is no longer this process's."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=lease / 3)
            if not await hold():
                return None
        return task.result()
    finally:
        task.cancel()
