"""What a start costs: the processor time of `serve`, from the command to the first token of an answer.

Machines differ, and neighbours slow them, so the figure is compared with that of a process that only imports
torch, measured in turns.
"""

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doubles.engines.processor_time import seconds_of_one
from tests.doubles.server_process import serving

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc"),
]
STARTS, TOGETHER = 5, 32
IMPORTS_OF_TORCH = 3.3  # 2.8 when this was written, 3.8 before parts of the start were left for later


def import_of_torch() -> float:
    code = "import torch, time; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)


def await_first_token(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=120)
    body = json.dumps({"input": "Who are you?", "temperature": 0, "stream": True})
    connection.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    while b".delta" not in (line := answer.readline()):
        assert line, "the answer has no token"
    connection.close()


def start() -> float:
    with serving(fresh=True) as server:
        await_first_token(server.url.removeprefix("http://"))
        return seconds_of_one(server.process.pid)


def test_a_start_costs_a_few_imports_of_torch() -> None:
    start()  # unpacks the embedded model, compiles modules, warms the disk's cache
    pairs = [(import_of_torch(), start()) for _ in range(STARTS)]
    imports, starts = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(own / torch for torch, own in pairs)
    print(f"start to first token: {starts:.2f} s of CPU; import of torch: {imports:.2f} s; ratio {ratio:.2f}")
    assert ratio < IMPORTS_OF_TORCH


async def _together(address: str) -> list[float]:
    began = time.perf_counter()

    async def one() -> float:
        await asyncio.to_thread(await_first_token, address)
        return time.perf_counter() - began

    return sorted(await asyncio.gather(*(one() for _ in range(TOGETHER))))


def test_prompts_that_arrive_together_are_read_together() -> None:
    """The last first token of many comes well before as many prompts alone would have had theirs."""
    with serving() as server:
        address = server.url.removeprefix("http://")
        await_first_token(address)
        alone = []
        for _ in range(TOGETHER):
            began = time.perf_counter()
            await_first_token(address)
            alone.append(time.perf_counter() - began)
        times = asyncio.run(_together(address))
    first, last, usual = times[0], times[-1], statistics.median(alone)
    print(f"first tokens of {TOGETHER}: {first:.2f} to {last:.2f} s; of one alone {usual:.2f} s")
    assert last < sum(alone)
