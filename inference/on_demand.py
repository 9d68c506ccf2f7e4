"""Engines that are loaded when a generation needs them, and unloaded when others need their room.

A pool holds at most so many loaded engines. A generation of one that is not loaded waits until it is; the one
used longest ago leaves for it, once nothing of it runs. Takes how to load each engine and what is known of it
before. Returns engines. It must not know what an engine computes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from inference.engine import (
    Checked,
    Engine,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    InferenceError,
    Sampling,
    Shared,
    State,
    Step,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Pool:
    """The loaded engines of one process."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._engines: list[OnDemand] = []
        self._changes = asyncio.Lock()  # one load at a time: each finds how much memory is free
        self._tasks: set[asyncio.Task[None]] = set()
        # One for all: glibc keeps freed memory for the thread that took it, hundreds of megabytes in each.
        self._thread = ThreadPoolExecutor(1, "loads")

    def add(
        self, info: EngineInfo, load: Callable[[], Engine], *, idle: float | None = None, name: str = ""
    ) -> OnDemand:
        """An engine that is loaded later, and unloaded after `idle` seconds without a generation.

        `name` is the operator's, for the log and errors.
        """
        engine = OnDemand(self, info, load, idle, name or info.name)
        self._engines.append(engine)
        return engine

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def bring(self, engine: OnDemand) -> None:
        """Loads it, after others have left if there is no room."""
        self._start(self._bring(engine))

    def dismiss(self, engine: OnDemand) -> asyncio.Task[None]:
        return self._start(self._dismiss(engine))

    def _start(self, change: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """It ends also when who asked for it has left."""
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _bring(self, engine: OnDemand) -> None:
        async with self._changes:
            loaded = [one for one in self._engines if one.is_loaded]
            loaded.sort(key=lambda one: (one.users > 0, one.used))
            surplus = 0 if self._most is None else len(loaded) + 1 - self._most
            try:
                for other in loaded[: max(0, surplus)]:
                    await other.leave()
                await engine.come()
            except Exception as error:  # who waits for the engine learns of any
                engine.fail(error)

    async def _dismiss(self, engine: OnDemand) -> None:
        async with self._changes:
            await engine.leave()


class OnDemand:
    """One engine of a pool."""

    def __init__(
        self, pool: Pool, info: EngineInfo, load: Callable[[], Engine], idle: float | None, name: str
    ) -> None:
        self._pool, self._known, self._load, self._idle, self._name = pool, info, load, idle, name
        self._engine: Engine | None = None
        self._leaving = False  # who comes now waits until it is loaded again
        self._waiting: list[asyncio.Future[Engine]] = []
        self._unused = asyncio.Event()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.users = 0
        self.used = 0.0
        self.state: State = "unloaded"
        self.problem: str | None = None  # why the last load failed

    @property
    def info(self) -> EngineInfo:
        return self._known if self._engine is None else self._engine.info

    @property
    def _ready(self) -> Engine | None:
        return None if self._leaving else self._engine

    @property
    def is_loaded(self) -> bool:
        return self._engine is not None

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        async with self._in_use() as engine, aclosing(engine.generate(tokens, sampling)) as steps:
            async for step in steps:
                yield step

    async def load(self) -> None:
        async with self._in_use():
            return

    async def unload(self) -> None:
        """Once nothing of it runs."""
        while self._ready is not None:
            await self._until_unused()
            if not self.users:
                await asyncio.shield(self._pool.dismiss(self))

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[Engine]:
        engine = self._ready
        if engine is None:
            engine = await self._after_load()
        else:
            self.users += 1
        try:
            yield engine
        finally:
            self._release()

    async def _after_load(self) -> Engine:
        """The engine once it is loaded, in use by the caller."""
        if self._closed:
            raise EngineClosed("The engine is closed.")
        mine: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._pool.bring(self)
        self._waiting.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self._release()
            raise

    def _release(self) -> None:
        self.users -= 1
        self.used = time.monotonic()
        if self.users:
            return
        self._unused.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._idle is not None:
            self._timer = asyncio.get_running_loop().call_later(self._idle, self._unload_if_idle)

    def _unload_if_idle(self) -> None:
        if not self.users and self._ready is not None:
            self._pool.dismiss(self)

    async def _until_unused(self) -> None:
        while self.users:
            self._unused.clear()
            await self._unused.wait()

    async def come(self) -> None:
        """Only the pool calls it."""
        self.state, began, name = "loading", time.monotonic(), self._name
        _log.info("Loading %s.", name)
        engine = await self._pool.run(self._load)
        self._engine, self._known, self.state, self.problem = engine, engine.info, "loaded", None
        self.used = time.monotonic()
        _log.info("Loaded %s in %.1f s.", name, self.used - began)

        def begin(waiter: asyncio.Future[Engine]) -> None:
            self.users += 1
            waiter.set_result(engine)

        self._hand_out(begin)

    def fail(self, error: Exception) -> None:
        """It could not be loaded. The next generation tries again."""
        self.state, self.problem, name = "failed", str(error), self._name
        _log.error("%s cannot be loaded. %s", name, error, exc_info=not isinstance(error, InferenceError))
        problem = EngineFailed(f"The model {name!r} cannot be loaded. {error}")
        self._hand_out(lambda waiter: waiter.set_exception(problem))

    def _hand_out(self, answer: Callable[[asyncio.Future[Engine]], None]) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():  # its client has left
                answer(waiter)

    async def leave(self) -> None:
        """Unloads it once nothing of it runs. Only the pool calls it."""
        self._leaving = True
        try:
            await self._until_unused()
            engine, self._engine, self.state = self._engine, None, "unloaded"
            if engine is not None:
                await engine.close()
                del engine
                await self._pool.run(_free_memory)
                _log.info("Unloaded %s.", self._name)
        finally:
            self._leaving = False

    async def check(self) -> None:
        engine = self._ready
        if engine is not None and isinstance(engine, Checked):
            await engine.check()

    def check_room(self) -> None:
        engine = self._ready
        if engine is not None and isinstance(engine, Shared):
            engine.check_room()

    def measures(self) -> Mapping[str, float]:
        engine = self._ready
        return engine.measures() if engine is not None and isinstance(engine, Shared) else {}

    def recent_steps(self) -> list[dict[str, int]]:
        return list(getattr(self._ready, "recent_steps", list)())

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if (engine := self._engine) is not None:
            await engine.close()


def _free_memory() -> None:
    """Of an engine that was loaded at the start too, which the collector does not look at."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
