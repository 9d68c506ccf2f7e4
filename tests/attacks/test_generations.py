"""Requests for very much work: choices and shares of the engine."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.doubles.attacked import Attacked, attacked, under_probe


@pytest.fixture(scope="module")
def server() -> Iterator[Attacked]:
    with attacked("--kv-memory", "512MiB") as server:
        yield server


def complete(server: Attacked, *, wait: float = 120, **body: Any) -> int:
    """The status; 0 if this client left before."""
    try:
        return httpx.post(f"{server.url}/v1/completions", json=body, timeout=wait).status_code
    except httpx.ReadTimeout:
        return 0


def active(server: Attacked) -> float:
    engine = httpx.get(f"{server.url}/health", timeout=60).json()["counters"]["engine"]
    return float(engine["running"] + engine["waiting"])


def test_millions_of_choices(server: Attacked) -> None:
    with under_probe(server, "20,000 prompts × n 128"):
        assert complete(server, prompt=["a"] * 20_000, n=128) == 400
    with under_probe(server, "2,048 choices, whose client leaves"):
        assert complete(server, wait=3, prompt=["a"] * 16, n=128, max_tokens=200) in (0, 200)
    deadline = time.monotonic() + 60
    while active(server):
        assert time.monotonic() < deadline, "choices go on without their client"
        time.sleep(0.2)


def test_one_client_does_not_starve_another(server: Attacked) -> None:
    with ThreadPoolExecutor(1) as attacker:
        with under_probe(server, "another's request during n=128 × 200 tokens") as probe:
            attacker.submit(complete, server, wait=25, prompt="Once", n=128, max_tokens=200)
            time.sleep(2)
            start = time.monotonic()
            assert complete(server, prompt="Hello", max_tokens=4) == 200
            assert time.monotonic() - start < 20, "it waits for the attacker's choices"
        assert probe.waits
        assert complete(server, prompt="a", priority=-1000) == 400
