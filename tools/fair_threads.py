"""Threads for long work, which owners share: none has them all, and their turns alternate.

A thread belongs to its work until that ends, even if nobody waits for it any more.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], Future[Any]]


class FairThreads:
    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._most = max(1, threads - 1)  # of one owner
        self._lock = threading.Lock()
        self._at_work: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Job]] = {}  # by owner, in the order of their turns

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """Runs it on a thread. Cancelling this gives up the owner's turn, but not work that has begun."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append((work, future))
            self._start()
        return await asyncio.wrap_future(future)

    def _start(self) -> None:
        """Starts work while there are threads. The caller holds the lock."""
        while self._free:
            ready = (owner for owner in self._waiting if self._at_work[owner] < self._most)
            owner = min(ready, key=self._at_work.__getitem__, default=None)
            if owner is None:
                return
            jobs = self._waiting.pop(owner)
            work, future = jobs.popleft()
            if jobs:
                self._waiting[owner] = jobs  # behind all others
            if future.set_running_or_notify_cancel():
                self._free -= 1
                self._at_work[owner] += 1
                self._executor.submit(self._work, owner, work, future)

    def _work(self, owner: str, work: Callable[[], Any], future: Future[Any]) -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        with self._lock:
            self._free += 1
            self._at_work[owner] -= 1
            if not self._at_work[owner]:
                del self._at_work[owner]
            self._start()
