"""This project against engines of other programs, interleaved: `LLAMA_SERVER=PATH VLLM=PATH make bench`.

The built-in engine on a CPU, THREADS (one) each and the same weights, where every engine is asked for token
ids over its own wire; and this server in front of vLLM against vLLM's own APIs. Other load disturbs all sides
alike, so only ratios are asserted, with room for noise. Processor time is that of the engine's process (the
built-in engine's includes the reader), or of every process that takes part; other load hardly changes it.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch

import inference
from inference import tiny
from inference.engine import Engine
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.benchmarks.test_inference_speed import prompts, timed
from tests.benchmarks.test_overhead import interleaved, port_of, streamed
from tests.doubles.engines.live import (
    exported,
    found_llama_server,
    found_vllm,
    llama_server,
    vllm_process,
    write_folder,
)
from tests.doubles.engines.processor_time import processor_seconds, seconds_of_one
from tests.doubles.server_process import serving

LLAMA, VLLM = found_llama_server(), found_vllm()
pytestmark = pytest.mark.benchmark
ROUNDS = int(os.environ.get("ROUNDS", "5"))
THREADS = int(os.environ.get("THREADS", "1"))
STREAMS = (1, 8, 32)
OUTPUT = 32
CONTEXT = 512


@dataclass(frozen=True, eq=False)
class Rival:
    name: str
    engine: Engine
    processor_seconds: Callable[[], float]  # that its process has used so far


def elsewhere(name: str, kind: str, url: str, process: subprocess.Popen[str]) -> Rival:
    return Rival(name, inference.load(f"{kind}:{url}"), partial(processor_seconds, process.pid))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def rivals(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Rival]]:
    """All with the layers of zeros that the others need, so that none computes less."""
    if not (LLAMA or VLLM):
        pytest.skip("no engine to compare with: set LLAMA_SERVER or VLLM")
    folder = write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    with ExitStack() as stack:
        own = load_local(folder, EngineOptions(device="cpu", context=CONTEXT), name="tiny")
        # The others are this process's children, and not counted as its own.
        found = [Rival("built-in engine", own, partial(seconds_of_one, os.getpid()))]
        if LLAMA is not None:
            model = exported(tiny.checkpoint(), folder / "tiny.gguf")
            server = llama_server(LLAMA, model, context=CONTEXT, slots=max(STREAMS), threads=THREADS)
            found.append(elsewhere("llama-server", "llama", *stack.enter_context(server)))
        if VLLM is not None:
            server = vllm_process(VLLM, folder, context=CONTEXT, threads=THREADS)
            found.append(elsewhere("vLLM", "vllm", *stack.enter_context(server)))
        yield found
        for rival in found:
            runner.run(rival.engine.close())
    torch.set_num_threads(threads)


async def measured(rival: Rival, streams: int, seed: int) -> tuple[float, float]:
    """Tokens per second, and milliseconds of processor time per token."""
    used, start = rival.processor_seconds(), time.perf_counter()
    await asyncio.gather(*(timed(rival.engine, prompt, OUTPUT) for prompt in prompts(streams, seed)))
    seconds, tokens = time.perf_counter() - start, streams * OUTPUT
    return tokens / seconds, (rival.processor_seconds() - used) / tokens * 1e3


@pytest.mark.parametrize("streams", STREAMS)
def test_the_built_in_engine_keeps_up(rivals: list[Rival], runner: asyncio.Runner, streams: int) -> None:
    found = interleaved(
        rivals, ROUNDS, lambda rival, turn: runner.run(measured(rival, streams, 1000 * streams + turn))
    )
    own = found[rivals[0]]
    print(f"\n{streams} streams of {OUTPUT} tokens, {THREADS} thread(s) each, median of {ROUNDS} rounds:")
    for rival, figures in found.items():
        rate = statistics.median(a / b for (a, _), (b, _) in zip(own, figures, strict=True))
        cost = statistics.median(b / a for (_, a), (_, b) in zip(own, figures, strict=True))
        print(
            f"  {rival.name:<16} {statistics.median(rate for rate, _ in figures):8.1f} tokens/s, "
            f"{statistics.median(cost for _, cost in figures):6.2f} ms of processor time per token; "
            f"the built-in engine is {rate:.2f} times as fast, and {cost:.2f} times by processor time"
        )
        assert rate > 0.4, rival.name


REQUESTS = {1: 6, 8: 24, 32: 64}  # of one measurement, by streams
APIS = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}
TOPICS = "rain|the sea|bread|chess|clouds|gold|music|rivers|light|maps|tea|ice"
FORMS = "What is {}?|Tell me about {}.|Write a poem about {}.|Why {}?|Explain {} to a child.|{}!"
QUESTIONS = [form.format(topic) for form in FORMS.split("|") for topic in TOPICS.split("|")]


@dataclass(frozen=True)
class Measured:
    rate: float  # tokens per second
    first: float  # seconds
    processor: float  # milliseconds per token, of every process that takes part


def body_of(api: str, question: str, limit: int) -> dict[str, Any]:
    common = {"model": "tiny", "stream": True, "temperature": 0}
    if api == "responses":
        return {**common, "input": question, "max_output_tokens": limit}
    usage = {"stream_options": {"include_usage": True}}
    return {**common, **usage, "messages": [{"role": "user", "content": question}], "max_tokens": limit}


def load(port: int, api: str, streams: int, requests: int, limit: int) -> tuple[int, float, float]:
    """Tokens, seconds, and the median of the seconds to the first text."""
    # The first chunk of a chat completion has an empty text.
    mark, text_at = ("_text.delta\n", 1) if api == "responses" else ("data: {", 2)
    bodies = [body_of(api, QUESTIONS[n % len(QUESTIONS)], limit) for n in range(requests)]
    jobs = [{"at": 0, "path": APIS[api], "body": body, "mark": mark} for body in bodies]
    results = streamed(port, jobs, streams=streams)
    firsts, tokens = [], 0
    for result in results:
        reads = zip(result["times"], accumulate(result["counts"]), strict=True)
        firsts.append(next(when for when, seen in reads if seen >= text_at) - result["start"])
        usage = result["usage"]
        tokens += usage.get("output_tokens") or usage["completion_tokens"]
    seconds = max(result["ended"] for result in results) - min(result["start"] for result in results)
    return tokens, seconds, statistics.median(firsts)


@dataclass(frozen=True)
class Side:
    name: str
    port: int
    processes: tuple[int, ...]  # whose time its tokens take

    def measure(self, api: str, streams: int, requests: int, limit: int = 64) -> Measured:
        before = sum(map(processor_seconds, self.processes))
        tokens, seconds, first = load(self.port, api, streams, requests, limit)
        used = sum(map(processor_seconds, self.processes)) - before
        return Measured(tokens / seconds, first, used / tokens * 1e3)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    if VLLM is None:
        pytest.skip("no vLLM: set VLLM to the path of its program")
    folder = write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))
    with vllm_process(VLLM, folder) as (url, engine), serving("--model", f"vllm:{url}") as own:
        yield (
            Side("gpt-oss-server on vLLM", port_of(own.url), (own.process.pid, engine.pid)),
            Side("vLLM alone", port_of(url), (engine.pid,)),
        )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", REQUESTS)
def test_tokens_per_second_are_those_of_vllm(sides: tuple[Side, Side], api: str, streams: int) -> None:
    found = interleaved(sides, ROUNDS, lambda side, _: side.measure(api, streams, REQUESTS[streams]))
    own, alone = found.values()
    ratio = statistics.median(a.rate / b.rate for a, b in zip(own, alone, strict=True))
    print(f"\n{api}, {streams} streams, median of {ROUNDS} pairs: ratio of tokens/s {ratio:.3f}")
    for side, figures in found.items():
        rate = statistics.median(each.rate for each in figures)
        processor = statistics.median(each.processor for each in figures)
        print(
            f"  {side.name:<24} {rate:7.1f} tokens/s (best {max(each.rate for each in figures):.1f})"
            f"   {processor:6.2f} ms of processor time per token"
        )
    assert ratio > 0.8


@pytest.mark.parametrize("api", APIS)
def test_the_first_token_is_as_early_as_vllms(sides: tuple[Side, Side], api: str) -> None:
    found = interleaved(sides, ROUNDS, lambda side, _: side.measure(api, 1, 12, limit=8))
    firsts = [statistics.median(each.first for each in figures) for figures in found.values()]
    print(f"\n{api}, time to the first text: {firsts[0] * 1e3:.1f} ms, vLLM alone {firsts[1] * 1e3:.1f} ms")
    assert firsts[0] < 2 * firsts[1] + 0.05
