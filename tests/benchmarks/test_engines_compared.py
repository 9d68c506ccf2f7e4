"""The built-in engine on a CPU against llama-server and vLLM: one thread each, the same weights, interleaved.

Needs them (`LLAMA_SERVER=PATH VLLM=PATH make bench`). Every engine is asked for token ids over its own wire,
with nothing of this server between. The processor time of each token is that of the engine's process alone;
the built-in engine's includes the reader, which shares its process.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

import inference
from inference import tiny
from inference.engine import Engine
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.benchmarks.test_inference_speed import prompts, timed
from tests.doubles.engines.live import (
    exported,
    found_llama_server,
    found_vllm,
    llama_server,
    vllm_process,
    write_folder,
)
from tests.doubles.engines.processor_time import processor_seconds, seconds_of_one

LLAMA, VLLM = found_llama_server(), found_vllm()
pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not (LLAMA or VLLM), reason="no engine to compare with: set LLAMA_SERVER or VLLM"),
]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
STREAMS = (1, 8, 32)
OUTPUT = 32
CONTEXT = 512


@dataclass
class Rival:
    name: str
    engine: Engine
    processor_seconds: Callable[[], float]  # that its process has used so far
    rates: list[float] = field(default_factory=list)  # tokens per second
    costs: list[float] = field(default_factory=list)  # milliseconds of processor time per token


def elsewhere(name: str, kind: str, url: str, process: subprocess.Popen[str]) -> Rival:
    return Rival(name, inference.load(f"{kind}:{url}"), partial(processor_seconds, process.pid))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def rivals(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Rival]]:
    """All with the layers of zeros that the others need, so that none computes less."""
    folder = write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        own = load_local(folder, EngineOptions(device="cpu", context=CONTEXT), name="tiny")
        # The others are this process's children, and not counted as its own.
        found = [Rival("built-in engine", own, partial(seconds_of_one, os.getpid()))]
        if LLAMA is not None:
            model = exported(tiny.checkpoint(), folder / "tiny.gguf")
            server = llama_server(LLAMA, model, context=CONTEXT, slots=max(STREAMS))
            found.append(elsewhere("llama-server", "llama", *stack.enter_context(server)))
        if VLLM is not None:
            server = vllm_process(VLLM, folder, context=CONTEXT)
            found.append(elsewhere("vLLM", "vllm", *stack.enter_context(server)))
        yield found
        for rival in found:
            runner.run(rival.engine.close())
    torch.set_num_threads(threads)


async def measured(rival: Rival, streams: int, seed: int) -> tuple[float, float]:
    used, start = rival.processor_seconds(), time.perf_counter()
    await asyncio.gather(*(timed(rival.engine, prompt, OUTPUT) for prompt in prompts(streams, seed)))
    seconds, tokens = time.perf_counter() - start, streams * OUTPUT
    return tokens / seconds, (rival.processor_seconds() - used) / tokens * 1e3


@pytest.mark.parametrize("streams", STREAMS)
def test_the_built_in_engine_keeps_up(rivals: list[Rival], runner: asyncio.Runner, streams: int) -> None:
    for rival in rivals:
        rival.rates.clear()
        rival.costs.clear()
    for turn in range(ROUNDS + 1):
        for rival in rivals if turn % 2 else reversed(rivals):
            rate, cost = runner.run(measured(rival, streams, 1000 * streams + turn))
            if turn:  # the first warms up
                rival.rates.append(rate)
                rival.costs.append(cost)
    own = rivals[0]
    print(f"\n{streams} streams of {OUTPUT} tokens, one thread each, median of {ROUNDS} rounds:")
    for rival in rivals:
        rate = statistics.median(a / b for a, b in zip(own.rates, rival.rates, strict=True))
        cost = statistics.median(b / a for a, b in zip(own.costs, rival.costs, strict=True))
        print(
            f"  {rival.name:<16} {statistics.median(rival.rates):8.1f} tokens/s, "
            f"{statistics.median(rival.costs):6.2f} ms of processor time per token; "
            f"the built-in engine is {rate:.2f} times as fast, and {cost:.2f} times by processor time"
        )
        assert rate > 0.4, rival.name
