"""Work on large parts of requests, in threads of its own: neither the event loop nor a tool waits for it.

Takes a function and the parts of a request that it works on. Runs it at once if they are small, because a
thread costs more than that. It must not know an API.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.responses import JSONResponse

from gpt_oss_server.json_values import is_larger

T = TypeVar("T")
# Characters of a request as JSON, so that many small items and tools count too. 10,000 characters take 3 to
# 6 ms to render, as one text, as messages of one letter or as declarations. A thread renders larger requests.
LARGE_INPUT = 10_000
# A request of many megabytes can take a thread for minutes, for which no other may wait.
HUGE_BODY = 1024**2
# They share one interpreter with the event loop; more threads would only slow it.
_large = ThreadPoolExecutor(2, "large requests")
_huge = ThreadPoolExecutor(1, "huge requests")
# Seconds for each byte of a huge request, before each part of its work. Calls such as parsing keep the
# interpreter for a tenth of a second; one after the other, each turn of the event loop would wait for one.
_PAUSE = 2e-9


_collecting = threading.Lock()
_holders = 0


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage is collected in the block, which creates many objects that all live on. Keep it short."""
    global _holders
    with _collecting:
        _holders += 1
        gc.disable()
    try:
        yield
    finally:
        with _collecting:
            _holders -= 1
            if not _holders:
                gc.enable()


async def in_thread(size: int, work: Callable[[], T]) -> T:
    """`size`: the bytes of the request's body."""
    loop = asyncio.get_running_loop()
    if size <= HUGE_BODY:
        return await loop.run_in_executor(_large, work)

    def unhurried() -> T:
        time.sleep(size * _PAUSE)
        return work()

    return await loop.run_in_executor(_huge, unhurried)


async def in_thread_if_large(size: int, work: Callable[[], T], *of: object) -> T:
    """Runs `work` on these parts of a request, in a thread if they are large, so that others do not wait.

    Of a huge request, any field may be the large one.
    """
    return await in_thread(size, work) if size > HUGE_BODY or is_larger(LARGE_INPUT, *of) else work()


async def json_answer(content: Any, size: int = 0) -> JSONResponse:
    """The answer with this content, which a thread encodes if it is large."""
    return await in_thread_if_large(size, lambda: JSONResponse(content), content)
