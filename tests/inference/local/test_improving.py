"""An idle engine makes its later steps faster, a fraction of a second at a time."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.engine import EngineInfo, Sampling
from inference.local.engine import LocalEngine, load_local
from inference.local.scheduling.prefix_cache import PrefixCache
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.torch_runner import TorchRunner
from inference.models.experts import Experts
from inference.options import EngineOptions
from tests.contracts.engine_contract import generated
from tests.doubles.inference.driven import MemoryRunner
from tests.doubles.waiting import until

pytestmark = pytest.mark.anyio
SOME = Sampling(temperature=0.0, max_tokens=5)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.local.loop.BEFORE_IMPROVING", 0.01)


@dataclass
class ImprovingRunner(MemoryRunner):
    """Improves itself a number of times, or fails at it."""

    left: int = 0
    failure: Exception | None = None
    calls: int = 0

    def improve(self) -> bool:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return self.calls < self.left


@pytest.fixture
def runner() -> ImprovingRunner:
    return ImprovingRunner((None,), 4)


@pytest.fixture
async def engine(runner: ImprovingRunner) -> AsyncIterator[LocalEngine]:
    info = EngineInfo(name="improving", context_length=200, vocab_size=1000)
    limits = SchedulerLimits(max_concurrent=4, max_waiting=4)
    engine = LocalEngine(runner, info, PrefixCache((None,), [64], 4), limits)
    yield engine
    await engine.close()


async def test_an_idle_engine_improves_its_runner(engine: LocalEngine, runner: ImprovingRunner) -> None:
    runner.left = 3
    assert runner.calls == 0  # before it is used, it does nothing
    first = (await generated(engine, SOME, prompt=[1, 2, 3])).tokens
    await until(lambda: runner.calls == 3)
    assert (await generated(engine, SOME, prompt=[1, 2, 3])).tokens == first
    assert runner.calls == 3


async def test_an_improvement_that_fails_is_logged_once_and_ends_no_generation(
    engine: LocalEngine, runner: ImprovingRunner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.failure = MemoryError("too little")
    with caplog.at_level(logging.WARNING):
        first = (await generated(engine, SOME, prompt=[1, 2, 3])).tokens
        await until(lambda: runner.calls == 1)
        assert (await generated(engine, SOME, prompt=[1, 2, 3])).tokens == first
    assert runner.calls == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await engine.check()


async def test_a_real_model_packs_its_experts_and_samples_the_same_tokens(checkpoint: Path) -> None:
    engine = load_local(checkpoint, EngineOptions(device="cpu"), name="small")
    try:
        assert isinstance(engine._runner, TorchRunner)
        experts = [layer.experts for layer in engine._runner._model._weights.layers]
        first = (await generated(engine, SOME, prompt=[*range(30)])).tokens
        assert not any(each._packed for each in experts if isinstance(each, Experts))
        await until(lambda: all(isinstance(each, Experts) and each._packed for each in experts))
        assert (await generated(engine, SOME, prompt=[*range(30)])).tokens == first
    finally:
        await engine.close()
