"""Work on large parts of requests, in threads of its own: neither the event loop nor a tool waits for it.

Takes a function and the parts of a request that it works on. Runs it at once if they are small, because a
thread costs more than that. It must not know an API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from starlette.responses import JSONResponse

from gpt_oss_server.json_values import is_larger

T = TypeVar("T")
# Characters of a request as JSON, so that many small items and tools count too. 10,000 characters take 3 to
# 6 ms to render, as one text, as messages of one letter or as declarations. A thread renders larger requests.
LARGE_INPUT = 10_000
# The threads share one interpreter with the event loop; more of them would only slow it.
_pool = ThreadPoolExecutor(2, "large requests")


async def in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool, copy_context().run, work)


async def in_thread_if_large(work: Callable[[], T], *of: object) -> T:
    """Runs `work` on these parts of a request, in a thread if they are large, so that others do not wait."""
    return await in_thread(work) if is_larger(LARGE_INPUT, *of) else work()


async def json_answer(content: Any) -> JSONResponse:
    """The answer with this content, which a thread encodes if it is large."""
    return await in_thread_if_large(lambda: JSONResponse(content), content)
