"""The real model, batched by the scheduler, compared with the same model on one request alone."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.config import ModelConfig
from inference.engine import EngineBusy, Sampling
from inference.local.engine import LocalEngine, load_local
from inference.local.memory_plan import layer_kinds
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import GptOss, load_model
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, becomes_idle, generated
from tests.doubles.inference.driven import Driven, Prompts, check_each_as_alone, tight_blocks
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

CPU = torch.device("cpu")
CONTEXT = 200
SIZE = 8


MODELS: dict[str, dict[str, Any]] = {
    "both kinds": {},
    "windows only": {"layers": 2, "sliding_layers": (True, True)},
    "wide heads": {"sliding_layers": (False, True, True), "heads": 4, "kv_heads": 4, "head_dim": 64},
}


@pytest.fixture(scope="module", params=MODELS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, config: ModelConfig
) -> GptOss:
    folder = tmp_path_factory.mktemp("model")
    write_random_checkpoint(folder, replace(config, **MODELS[request.param]), seed=11)
    return load_model(folder, device=CPU, context=CONTEXT)


@pytest.mark.parametrize("seed", range(2))
async def test_chunks_preemption_prefixes_and_drafts_change_no_token(model: GptOss, seed: int) -> None:
    draw = random.Random(seed)
    sizes = {"max_concurrent": [2, 4, 7], "chunk": [16, 64], "shared_chunk": [5, 32], "least_chunk": [1, 8]}
    chosen = {name: draw.choice(few) for name, few in sizes.items()}
    limits = SchedulerLimits(max_waiting=1000, drafts=(seed % 2) * 4, **chosen)
    spare = draw.choice([0, 30])
    blocks = tight_blocks(layer_kinds(model), limits, context=CONTEXT, size=SIZE, spare=spare)
    engine = Driven(TorchRunner(model, blocks, SIZE), model.config.windows, blocks, limits)
    prompts = Prompts(draw, CONTEXT // 2, vocabulary=500)
    for _ in range(50):
        if draw.random() < 0.4 and len(engine.clients) < 12:
            engine.request(prompts.next(), draw.choice([2, 10, 30]), Sampling(temperature=0.0))
        else:
            engine.turn()
    engine.finish()
    check_each_as_alone(engine, model)
    assert engine.cache.used == 0
    assert engine.scheduler.counts.cached_tokens > 0


@pytest.fixture
async def engine(checkpoint: Path) -> AsyncIterator[LocalEngine]:
    options = EngineOptions(device="cpu", max_concurrent=32, max_waiting=1000)
    engine = load_local(checkpoint, options, name="small")
    yield engine
    await engine.close()


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


async def test_two_hundred_streams_with_many_cut_off_leave_nothing(engine: LocalEngine) -> None:
    draw = random.Random(5)

    async def one(number: int, cut: bool) -> int:
        prompt = [number % 500, *([7] * draw.randint(1, 40))]
        count = 0
        async with aclosing(engine.generate(prompt, replace(GREEDY, max_tokens=6))) as stream:
            async for step in stream:
                count += len(step.tokens)
                if cut and count >= draw.randint(1, 4):
                    break
        return count

    async def wave() -> None:
        counts = await asyncio.gather(*(one(at, draw.random() < 0.2) for at in range(200)))
        assert sum(count == 6 for count in counts) > 120
        await becomes_idle(engine)

    await wave()
    before = resident_bytes()
    await wave()
    assert resident_bytes() < before + (24 << 20)  # besides the cache's content, which is planned
    measures = engine.measures()
    assert (measures["running"], measures["waiting"], measures["kv_blocks_used"]) == (0, 0, 0)
    engine._scheduler.cache.check_integrity([])
    assert sorted(engine._scheduler._slots) == list(range(32))


async def test_the_first_step_reports_cached_tokens(engine: LocalEngine) -> None:
    prompt = [at % 500 for at in range(100)]
    first = await generated(engine, GREEDY, prompt)
    again = await generated(engine, GREEDY, [*prompt, *first.tokens, 3, 4])
    assert [step.cached_tokens for step in first.steps] == [0] * len(first.steps)
    assert again.steps[0].cached_tokens == 128  # of 140 computed ones, in full blocks
    assert not any(step.cached_tokens for step in again.steps[1:])


async def test_a_full_engine_refuses_requests(checkpoint: Path) -> None:
    options = EngineOptions(device="cpu", max_concurrent=1, max_waiting=1)
    engine = load_local(checkpoint, options, name="small")
    try:
        streams = [engine.generate([1], replace(GREEDY, max_tokens=None)) for _ in range(2)]
        second = asyncio.create_task(anext(streams[1]))
        await anext(streams[0])
        with pytest.raises(EngineBusy):
            engine.check_room()
        with pytest.raises(EngineBusy, match="are already waiting, which is the limit"):
            await generated(engine)
        await streams[0].aclose()
        await second
        await streams[1].aclose()
    finally:
        await engine.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_drafts_do_not_change_the_tokens_of_a_seed(checkpoint: Path, temperature: float) -> None:
    found = []
    for speculation in (False, True):
        engine = load_local(checkpoint, EngineOptions(device="cpu", speculation=speculation), name="small")
        fields = {"temperature": temperature, "seed": 4, "top_k": 2, "frequency_penalty": 0.1}
        sampling = replace(GREEDY, max_tokens=150, **fields)
        found.append((await generated(engine, sampling, [1, 2, 3] * 10)).tokens)
        measures = engine.measures()
        await engine.close()
    assert found[0] == found[1]
    assert measures["drafted_tokens"] > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_prediction_saves_steps_and_changes_no_token(checkpoint: Path, temperature: float) -> None:
    engine = load_local(checkpoint, EngineOptions(device="cpu"), name="small")
    sampling = replace(GREEDY, max_tokens=150, temperature=temperature, seed=4, frequency_penalty=0.1)
    plain = (await generated(engine, sampling, [1, 2, 3])).tokens
    alone = engine.measures()["steps"]
    edited = (*plain[:40], 7, 7, *plain[43:90], *plain[100:])  # tokens replaced, and some left out
    found = await generated(engine, replace(sampling, predicted=edited), [1, 2, 3])
    assert found.tokens == plain
    assert engine.measures()["steps"] - alone < alone / 2
    accepted = sum(step.accepted for step in found.steps)
    assert accepted == engine.measures()["accepted_tokens"]
    assert accepted + sum(step.rejected for step in found.steps) == engine.measures()["drafted_tokens"]
    await engine.close()


@pytest.mark.parametrize("context", [1000, None])
def test_memory_that_is_enough_keeps_the_context(
    checkpoint: Path, context: int | None, config: ModelConfig
) -> None:
    memory = 2 * config.kv_heads * config.head_dim * 4 * 2 * 3000  # tokens
    options = EngineOptions(device="cpu", context=context, kv_memory=memory, max_concurrent=1)
    info = load_local(checkpoint, options, name="s").info
    assert info.context_length == (context or config.context_length)
    assert "requests may run" in info.plan
