"""Work on large parts of requests, in threads of its own: neither the event loop nor a tool waits for it."""

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from starlette.responses import JSONResponse

from gpt_oss_server.errors import InvalidRequest
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
LONGEST_WORK = 120.0  # seconds of one thread for one part of a request
_LOOK = 1.0


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


class _Interrupted(BaseException):
    """Ends work in its thread. No `except Exception` stops it."""


class _Job(Generic[T]):
    """Work for a thread, which can be interrupted between two calls of functions."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: int | None = None  # while it works
        self.began: float | None = None

    def __call__(self) -> T:
        with self._lock:
            self._thread, self.began = threading.get_ident(), time.monotonic()
        try:
            return self._work()
        finally:
            with self._lock:
                self._thread = None
            for _ in range(2):  # an interruption that came before is raised here, at the latest
                pass

    def interrupt(self) -> None:
        with self._lock:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupted)
                )


async def in_thread(size: int, work: Callable[[], T]) -> T:
    """`size`: of the request's body. The limit of time interrupts the work, as does a client that leaves."""

    def unhurried() -> T:
        time.sleep(size * _PAUSE)
        return work()

    job = _Job(work if size <= HUGE_BODY else unhurried)
    threads = _large if size <= HUGE_BODY else _huge
    future = asyncio.get_running_loop().run_in_executor(threads, job)
    try:
        while not (await asyncio.wait({future}, timeout=_LOOK))[0]:
            if job.began is not None and time.monotonic() - job.began > LONGEST_WORK:
                job.interrupt()
        return future.result()
    except _Interrupted:
        raise InvalidRequest(
            f"This request takes more than {LONGEST_WORK:.0f} seconds to read. Send less."
        ) from None
    except asyncio.CancelledError:
        future.cancel()
        job.interrupt()
        raise


async def in_thread_if_large(size: int, work: Callable[[], T], *of: object) -> T:
    """Runs `work` on these parts of a request, in a thread if any is large or the whole request is huge."""
    return await in_thread(size, work) if size > HUGE_BODY or is_larger(LARGE_INPUT, *of) else work()


async def json_answer(content: Any, size: int = 0, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer with this content, which a thread encodes if it is large."""
    return await in_thread_if_large(size, lambda: JSONResponse(content, headers=headers), content)
