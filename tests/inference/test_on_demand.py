"""Engines that are loaded on demand: who waits, who leaves, and that nobody waits for ever."""

import asyncio
import itertools
import resource
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from inference.backends.table import load_later
from inference.engine import CheckpointError, Engine, EngineFailed, EngineInfo, Finish, Sampling, Step
from inference.local import engine as local
from inference.on_demand import OnDemand, Pool
from inference.options import EngineOptions
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.waiting import until_found


@dataclass
class Loads:
    """Loads engines that sample their own number, and counts how many are loaded simultaneously."""

    now: int = 0
    most: int = 0
    names: list[str] = field(default_factory=list)
    problem: str | None = None

    def load(self, name: str) -> Engine:
        if self.problem is not None:
            raise CheckpointError(self.problem)
        self.names.append(name)
        self.now += 1
        self.most = max(self.most, self.now)
        return Counted(name, self)


class Counted:
    def __init__(self, name: str, loads: Loads) -> None:
        self.info = EngineInfo(name=name, context_length=int(name))
        self._loads = loads
        self.is_closed = False

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        for _ in range(sampling.max_tokens or 1):
            await asyncio.sleep(0)
            assert not self.is_closed, "it was unloaded while a generation ran"
            yield Step((int(self.info.name),), None)
        yield Step((), Finish.LENGTH)

    async def close(self) -> None:
        self.is_closed = True
        self._loads.now -= 1


@pytest.fixture
def loads() -> Loads:
    return Loads()


def engines(loads: Loads, count: int, most: int | None, idle: float | None = None) -> list[OnDemand]:
    pool, names = Pool(most), [str(number) for number in range(1, count + 1)]
    return [
        pool.add(EngineInfo(name=name, context_length=9), partial(loads.load, name), idle=idle)
        for name in names
    ]


async def sampled(engine: Engine, count: int = 3) -> list[int]:
    sampling = Sampling(temperature=0, max_tokens=count)
    return [token async for step in engine.generate([1], sampling) for token in step.tokens]


async def test_an_engine_is_loaded_at_its_first_generation_and_its_facts_are_known_then(loads: Loads) -> None:
    [engine] = engines(loads, 1, None)
    assert (engine.state, engine.info.context_length, loads.names) == ("unloaded", 9, [])
    both = await asyncio.gather(sampled(engine), sampled(engine))
    assert both == [[1] * 3] * 2
    assert (engine.state, engine.info.context_length, loads.names) == ("loaded", 1, ["1"])


async def test_the_one_used_longest_ago_leaves_for_another(loads: Loads) -> None:
    first, second, third = engines(loads, 3, 2)
    for engine in (first, second, first, third):
        await sampled(engine)
    assert [engine.state for engine in (first, second, third)] == ["loaded", "unloaded", "loaded"]
    assert loads.most == 2


@pytest.mark.parametrize("most", [1, 2])
async def test_swaps_under_many_streams_lose_none_and_nobody_waits_for_ever(loads: Loads, most: int) -> None:
    """Each engine has always someone who wants it next."""
    served = engines(loads, 3, most)

    async def stream(of: int) -> None:
        for _ in range(3):
            assert await sampled(served[of], 20) == [of + 1] * 20

    async with asyncio.timeout(60):
        await asyncio.gather(*(stream(number % 3) for number in range(24)))
    assert loads.most <= most
    assert len(loads.names) >= 3


async def test_a_client_that_leaves_while_its_engine_is_loaded_holds_nothing(loads: Loads) -> None:
    first, second = engines(loads, 2, 1)
    waiting = [asyncio.create_task(sampled(first)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert await sampled(second) == [2] * 3
    assert first.users == second.users == 0
    assert await sampled(first) == [1] * 3


async def test_what_cannot_be_loaded_fails_with_the_reason_and_is_tried_again(loads: Loads) -> None:
    loads.problem = "The disk is gone."
    [engine] = engines(loads, 1, None)
    for _ in range(2):
        with pytest.raises(EngineFailed, match=r"'1' cannot be loaded. The disk is gone"):
            await sampled(engine)
        assert (engine.state, engine.problem) == ("failed", "The disk is gone.")
    loads.problem = None
    assert await sampled(engine) == [1] * 3
    assert engine.problem is None


async def test_an_idle_engine_is_unloaded_and_loaded_again(loads: Loads) -> None:
    [engine] = engines(loads, 1, None, idle=0.01)
    assert await sampled(engine) == [1] * 3
    await until_found(lambda: asyncio.sleep(0.01, engine.state), lambda state: state == "unloaded")
    assert await sampled(engine) == [1] * 3


async def test_it_is_unloaded_when_what_runs_has_ended(loads: Loads) -> None:
    [engine] = engines(loads, 1, None)
    running = asyncio.create_task(sampled(engine, 500))
    await until_found(lambda: asyncio.sleep(0, engine.users), bool)
    await engine.unload()
    assert (engine.state, engine.users, running.done()) == ("unloaded", 0, True)
    assert await running == [1] * 500


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [write_random_checkpoint(tmp_path / f"model-{seed}", SMALLEST, seed) for seed in range(2)]


async def test_real_engines_swap_and_their_memory_comes_back(folders: list[Path]) -> None:
    pool, options = Pool(1), EngineOptions(device="cpu", kv_memory=2**22)
    served = [load_later(str(folder), options, pool) for folder in folders]
    assert [engine.info.name for engine in served] == ["model-0", "model-1"]
    texts, peaks = [], []
    for engine in itertools.islice(itertools.cycle(served), 8):
        texts.append(await sampled(engine))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert texts[:2] * 4 == texts
    assert texts[0] != texts[1]
    weights = sum(path.stat().st_size for path in folders[0].glob("*.safetensors")) / 1024
    assert peaks[-1] - peaks[3] < 2 * weights, "four loads took no more than two at a time"
    for engine in served:
        await engine.close()


async def test_weights_that_do_not_fit_are_refused_with_figures(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "free_memory", lambda: 2**20)
    engine = load_later(str(folders[0]), EngineOptions(device="cpu"), Pool())
    with pytest.raises(EngineFailed, match=r"take 0\.0 GiB, and 0\.0 GiB of the memory for cpu are free"):
        await sampled(engine)
