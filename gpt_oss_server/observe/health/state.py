"""What a server reports of itself: the problems of its engines, and whether it is draining."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from gpt_oss_server.models.model import Model
from gpt_oss_server.stores.repeated import Repeated
from inference import engine as engines
from inference.failures import Failures

# Checks in a row that must fail before the process may end: a server elsewhere may only restart.
_FOR_GOOD = 2
_AGAIN = 1.0  # seconds until a failed check is repeated, where the interval is longer
_log = logging.getLogger(__name__)


class Health:
    """The health of a server, which lives as long as one of its models can generate."""

    def __init__(self, models: Sequence[Model], *, interval: float) -> None:
        """It keeps the condition of each model up to date."""
        self.draining = False
        self.on_failure: Callable[[str], None] = lambda problem: None  # once, on the event loop
        self._engines = [EngineHealth(model, self._lost, interval=interval) for model in models]
        self._failed = False

    @property
    def problem(self) -> str | None:
        """Why no model can generate, as a sentence."""
        return self._engines[0].problem if all(engine.problem for engine in self._engines) else None

    @property
    def refusal(self) -> str | None:
        """Why the server should get no further requests, as a sentence."""
        if self.draining:
            return "The server is stopping and finishes what it has begun. Send requests to another one."
        if self.problem is not None:
            return f"The engine cannot generate. {self.problem}"
        return None

    def start(self) -> None:
        """Call it in the event loop."""
        for engine in self._engines:
            engine.repeated.start()

    async def close(self) -> None:
        for engine in self._engines:
            await engine.repeated.close()

    async def look(self) -> None:
        """Checks each engine once."""
        for engine in self._engines:
            await engine.look()

    def _lost(self) -> None:
        if not self._failed and all(engine.lost for engine in self._engines):
            self._failed = True
            self.on_failure(str(self.problem))


class EngineHealth:
    """Looks whether the engine of one model can generate."""

    def __init__(self, model: Model, on_lost: Callable[[], None], *, interval: float) -> None:
        self._condition, self._engine, self._on_lost = model.condition, model.engine, on_lost
        self._name = model.name
        self._failed = 0  # checks in a row
        self.repeated = Repeated(self.look, interval, f"The engine of {model.name} could not be checked")

    @property
    def problem(self) -> str | None:
        """Why the engine cannot generate, as a sentence."""
        return self._condition.problem

    @property
    def lost(self) -> bool:
        return self._failed >= _FOR_GOOD

    async def look(self) -> None:
        """Checks the engine once."""
        try:
            if isinstance(self._engine, engines.Checked):
                await self._engine.check()
        except engines.EngineFailed as error:
            self._report(str(error))
        except Exception as error:  # a defect of an engine's check, which must not end the checks
            _log.exception("The check of the engine failed.")
            self._report(f"Its check failed with {type(error).__name__}; the log has more.")
        else:
            if self.problem is not None:
                _log.warning("The engine of %s can generate again.", self._name)
            self._condition.problem, self._failed = None, 0

    def _report(self, problem: str) -> None:
        if self.problem is None:
            _log.error("The engine of %s cannot generate. %s", self._name, problem)
        self._condition.problem = problem
        self._failed += 1
        if self._failed == _FOR_GOOD:
            self._on_lost()
        elif self._failed < _FOR_GOOD:
            asyncio.get_running_loop().call_later(_AGAIN, self.repeated.wake)


_OF_THE_REQUEST = (engines.ContextOverflow, engines.EngineBusy, engines.EngineClosed)


def checked(engine: engines.Engine) -> engines.Engine:
    if isinstance(engine, engines.Checked):
        return engine
    return SharedCountedEngine(engine) if isinstance(engine, engines.Shared) else CountedEngine(engine)


class CountedEngine:
    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._failures = Failures()

    @property
    def info(self) -> engines.EngineInfo:
        return self._engine.info

    async def generate(
        self, tokens: Sequence[int], sampling: engines.Sampling
    ) -> AsyncGenerator[engines.Step, None]:
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

    def __init__(self, engine: engines.Engine) -> None:
        super().__init__(engine)
        assert isinstance(engine, engines.Shared)
        self._shared: engines.Shared = engine

    def check_room(self) -> None:
        self._shared.check_room()

    def measures(self) -> Mapping[str, float]:
        return self._shared.measures()
