"""Limits of keys with real parts: servers that share a Postgres, the engine, and python in a sandbox."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference.backends.table import load
from inference.options import EngineOptions
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.keyed import with_keys
from tests.doubles.postgres import running_postgres
from tests.doubles.serving import HELLO, scripted, serving
from tests.tools.python.conftest import needs_bubblewrap

LONG = {"when": "LONG", "text": "<|channel|>final<|message|>" + "word " * 4_000}
OWN = {"Authorization": "Bearer sk-a"}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[Api]]:
    with running_postgres() as postgres:
        settings = with_keys(tmp_path, "sk-a rpm=20 background=3", store=postgres.new_database())
        both = [Api(scripted(LONG, HELLO, tokens_per_second=3_000), settings) for _ in range(2)]
        yield both
        for api in both:
            await api.client.aclose()
            await api.service.close()


async def test_requests_per_minute_hold_in_sum(servers: list[Api]) -> None:
    async def send(number: int) -> httpx.Response:
        return await servers[number % 2].client.post("/responses", json={"input": "Hi"}, headers=OWN)

    answers = await asyncio.gather(*map(send, range(50)))
    counts = Counter(answer.status_code for answer in answers)
    assert set(counts) == {200, 429}
    assert 20 <= counts[200] <= 30, "one more every three seconds"


async def test_background_runs_hold_in_sum(servers: list[Api]) -> None:
    async def begin(number: int) -> int:
        body = {"input": "LONG", "background": True}
        return (await servers[number % 2].client.post("/responses", json=body, headers=OWN)).status_code

    assert Counter(await asyncio.gather(*map(begin, range(10)))) == {200: 3, 429: 7}


MANY, SLOTS = 32, 4


@pytest.mark.slow
async def test_one_keys_many_requests_do_not_hold_up_anothers_one(tmp_path: Path) -> None:
    settings = with_keys(tmp_path, "sk-many", "sk-one", max_concurrent=SLOTS)
    order: list[str] = []
    working = asyncio.Event()  # all requests wait, and some have been answered

    async def send(url: str, key: str) -> None:
        body: dict[str, Any] = {"input": "Count.", "max_output_tokens": 6, "ignore_eos": True, "store": False}
        headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        async with httpx.AsyncClient(timeout=300) as client:
            answer = await client.post(f"{url}/responses", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        order.append(key)
        if len(order) == SLOTS:
            working.set()

    with serving(load("tiny", options=EngineOptions(max_concurrent=SLOTS)), settings) as url:
        many = [asyncio.create_task(send(url, "sk-many")) for _ in range(MANY)]
        await working.wait()
        before = len(order)
        await send(url, "sk-one")
        ahead = len(order) - 1 - before
        await asyncio.gather(*many)
    assert len(order) == MANY + 1
    assert ahead <= 4 * SLOTS, f"{ahead} of the many were answered first"


GROW = (
    "<|channel|>analysis to=python code<|message|>"
    # Memory is counted ten times a second.
    "import time\nkept = bytearray(b'x') * (200 << 20)\ntime.sleep(2)<|call|>"
)
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
MIB = 1024 * 1024


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    needs_bubblewrap()
    keys = ("sk-small memory=150MiB", "sk-default", "sk-free memory=none")
    bounds = {"key_python_memory": 170 * MIB, "max_body_bytes": 64 * MIB}
    settings = with_keys(tmp_path, *keys, python="bubblewrap", browser="off", **bounds)
    with serving(scripted(GROW, ANSWER, loop=True), settings) as base:
        yield base


def post(url: str, key: str, path: str, **sent: Any) -> httpx.Response:
    return httpx.post(url + path, headers={"Authorization": f"Bearer {key}"}, timeout=120, **sent)


def test_files_beyond_a_keys_memory_get_429_and_those_of_another_key_do_not(url: str) -> None:
    answers: dict[str, list[httpx.Response]] = {}
    for key in ("sk-small", "sk-free"):
        container = post(url, key, "/containers", json={"name": "data"}).json()["id"]
        files = f"/containers/{container}/files"
        sent = ({"file": (f"{number}", b"x" * (20 * MIB))} for number in range(8))
        answers[key] = [post(url, key, files, files=each) for each in sent]
    assert {answer.status_code for answer in answers["sk-free"]} == {200}
    assert answers["sk-small"][0].status_code == 200
    refused = answers["sk-small"][-1]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_containers")
    assert "conversations of this client hold 150 MiB of memory" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("key", "limit"), [("sk-small", 150), ("sk-default", 170), ("sk-free", None)])
def test_the_model_learns_why_its_kernel_was_killed(url: str, key: str, limit: int | None) -> None:
    body = {"input": "Grow.", "tools": [CODE], "include": ["code_interpreter_call.outputs"]}
    answer = post(url, key, "/responses", json=body).json()
    [call] = [item for item in answer["output"] if item["type"] == "code_interpreter_call"]
    if limit is None:
        assert call["status"] == "completed"
    else:
        assert call["status"] == "failed"
        assert f"{limit} MiB of memory" in call["outputs"][0]["logs"]
