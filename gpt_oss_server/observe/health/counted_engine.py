"""Counts the failures of an engine that cannot be checked, such as a user's own. The project's can be."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from inference.engine import (
    Checked,
    ContextOverflow,
    Engine,
    EngineBusy,
    EngineClosed,
    EngineInfo,
    Sampling,
    Shared,
    Step,
)
from inference.failures import Failures

_OF_THE_REQUEST = (ContextOverflow, EngineBusy, EngineClosed)


def checked(engine: Engine) -> Engine:
    if isinstance(engine, Checked):
        return engine
    return SharedCountedEngine(engine) if isinstance(engine, Shared) else CountedEngine(engine)


class CountedEngine:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failures = Failures()

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        try:
            async with aclosing(self._engine.generate(tokens, sampling)) as steps:
                async for step in steps:
                    if self._failures.count:
                        self._failures.succeeded()
                    yield step
        except _OF_THE_REQUEST:
            raise
        except Exception:
            self._failures.failed()
            raise

    async def check(self) -> None:
        await self._failures.check(self._engine.generate)

    async def close(self) -> None:
        await self._engine.close()


class SharedCountedEngine(CountedEngine):
    """The same for an engine that limits how many generations it accepts."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        assert isinstance(engine, Shared)
        self._shared: Shared = engine

    def check_room(self) -> None:
        self._shared.check_room()

    def measures(self) -> Mapping[str, float]:
        return self._shared.measures()
