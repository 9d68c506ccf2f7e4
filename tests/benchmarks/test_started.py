"""From nothing to the first token: `serve MODEL.gguf` beside llama-server alone, in turn, in one run.

Both load the embedded model's file; the first token is one of a chat completion, whose request is sent when
the server is ready. `LLAMA_SERVER=PATH make bench` runs it; ROUNDS (5) changes its size.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from inference import tiny
from tests.benchmarks.test_overhead import interleaved
from tests.doubles.engines.live import exported, found_llama_server
from tests.doubles.server_process import free_port

pytestmark = pytest.mark.benchmark
LLAMA = found_llama_server()
ROUNDS = int(os.environ.get("ROUNDS", "5"))
BODY = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 8, "temperature": 0}
DELTAS = ("content", "reasoning", "reasoning_content")


def seconds_to_first_token(command: list[str]) -> float:
    """From the start of the process. The port is the command's last word."""
    url, began = f"http://127.0.0.1:{command[-1]}", time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(timeout=300) as client:
                while not _is_ready(client, url):
                    assert process.poll() is None
                    time.sleep(0.01)
                with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as answer:
                    for line in answer.iter_lines():
                        if line.startswith("data: {") and _has_text(json.loads(line[6:])):
                            return time.perf_counter() - began
        finally:
            process.terminate()
    raise AssertionError("no token")


def _is_ready(client: httpx.Client, url: str) -> bool:
    try:
        answer = client.get(f"{url}/health")
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and answer.json().get("ready", True)


def _has_text(event: dict[str, list[dict[str, dict[str, str]]]]) -> bool:
    return any(choice["delta"].get(name) for choice in event["choices"] for name in DELTAS)


@pytest.mark.skipif(LLAMA is None, reason="no llama-server: set LLAMA_SERVER to its path")
def test_a_started_llama_server_costs_little_more_than_itself(tmp_path: Path) -> None:
    model = str(exported(tiny.checkpoint(), tmp_path / "tiny.gguf"))
    sizes = "-c 32772 -np 4 -t 1 -tb 1"
    serve = [sys.executable, "-m", "gpt_oss_server", "serve", model, "--python", "off", "--context", "8192"]
    serve += ["--engine-program", LLAMA, "--engine-args", "-t 1 -tb 1"]
    kinds: dict[str, Callable[[], list[str]]] = {
        "this server": lambda: [*serve, "--port", str(free_port())],
        "llama-server": lambda: [LLAMA, "-m", model, *sizes.split(), "--port", str(free_port())],
    }
    found = interleaved(kinds, ROUNDS, lambda name, _: seconds_to_first_token(kinds[name]()))
    own, alone = (statistics.median(seconds) for seconds in found.values())
    print(
        f"\nto the first token, median of {ROUNDS}: this server {own:.2f} s, llama-server alone {alone:.2f} s"
    )
    print({name: [round(each, 2) for each in seconds] for name, seconds in found.items()})
    assert own < 30 * alone
