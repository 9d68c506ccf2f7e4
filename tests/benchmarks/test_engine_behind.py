"""What this server costs in front of vLLM: its APIs against vLLM's own, on one vLLM, interleaved.

Needs vLLM (`VLLM=PATH make bench`). Other load disturbs both sides alike, so only ratios are asserted, with
room for noise; the processor time of each token is printed too, which other load hardly changes.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inference import tiny
from tests.doubles.engines.live import found_vllm, vllm_process, write_folder
from tests.doubles.engines.processor_time import processor_seconds
from tests.doubles.server_process import serving

PROGRAM = found_vllm()
pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(PROGRAM is None, reason="no vLLM: set VLLM to the path of its program"),
]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
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


def load(port: int, api: str, streams: int, requests: int, limit: int) -> dict[str, Any]:
    bodies = [body_of(api, QUESTIONS[n % len(QUESTIONS)], limit) for n in range(requests)]
    job = {"host": "127.0.0.1", "port": port, "path": APIS[api], "streams": streams, "bodies": bodies}
    command = [sys.executable, str(Path(__file__).with_name("answers_client.py"))]
    done = subprocess.run(command, input=json.dumps(job).encode(), stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Side:
    name: str
    port: int
    processes: tuple[int, ...]  # whose time its tokens take

    def measure(self, api: str, streams: int, requests: int, limit: int = 64) -> Measured:
        before = sum(map(processor_seconds, self.processes))
        found = load(self.port, api, streams, requests, limit)
        used = sum(map(processor_seconds, self.processes)) - before
        return Measured(found["tokens"] / found["seconds"], found["first"], used / found["tokens"] * 1e3)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    assert PROGRAM is not None
    folder = write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))
    with vllm_process(PROGRAM, folder) as (url, engine), serving("--model", f"vllm:{url}") as own:
        port = int(url.rpartition(":")[2])
        yield (
            Side("gpt-oss-server on vLLM", int(own.url.rpartition(":")[2]), (own.process.pid, engine.pid)),
            Side("vLLM alone", port, (engine.pid,)),
        )


def interleaved(
    sides: tuple[Side, Side], api: str, streams: int, requests: int, **more: int
) -> list[list[Measured]]:
    """One list for each side; the first round warms up."""
    found: list[list[Measured]] = [[], []]
    for turn in range(ROUNDS + 1):
        for place in (0, 1) if turn % 2 else (1, 0):
            measured = sides[place].measure(api, streams, requests, **more)
            if turn:
                found[place].append(measured)
    return found


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", REQUESTS)
def test_tokens_per_second_are_those_of_vllm(sides: tuple[Side, Side], api: str, streams: int) -> None:
    own, alone = interleaved(sides, api, streams, REQUESTS[streams])
    ratio = statistics.median(a.rate / b.rate for a, b in zip(own, alone, strict=True))
    print(f"\n{api}, {streams} streams, median of {ROUNDS} pairs: ratio of tokens/s {ratio:.3f}")
    for side, found in zip(sides, (own, alone), strict=True):
        rate = statistics.median(each.rate for each in found)
        processor = statistics.median(each.processor for each in found)
        print(
            f"  {side.name:<24} {rate:7.1f} tokens/s (best {max(each.rate for each in found):.1f})"
            f"   {processor:6.2f} ms of processor time per token"
        )
    assert ratio > 0.8


@pytest.mark.parametrize("api", APIS)
def test_the_first_token_is_as_early_as_vllms(sides: tuple[Side, Side], api: str) -> None:
    own, alone = interleaved(sides, api, 1, 12, limit=8)
    firsts = [statistics.median(each.first for each in found) for found in (own, alone)]
    print(f"\n{api}, time to the first text: {firsts[0] * 1e3:.1f} ms, vLLM alone {firsts[1] * 1e3:.1f} ms")
    assert firsts[0] < 2 * firsts[1] + 0.05
