"""Two servers that share a Postgres: limits per minute and of background runs hold for both together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.postgres import missing, running_postgres
from tests.doubles.serving import scripted

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
LONG = {"when": "LONG", "text": "<|channel|>final<|message|>" + "word " * 4_000}
OWN = {"Authorization": "Bearer sk-a"}


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[Api]]:
    if (why := missing()) is not None:
        pytest.skip(why)
    (tmp_path / "keys").write_text("sk-a rpm=20 background=3\nsk-b tpm=3000\n")
    with running_postgres() as postgres:
        place = postgres.new_database()
        settings = Settings(store=place, api_key_file=str(tmp_path / "keys"), python="off")
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


async def test_tokens_per_minute_hold_in_sum(servers: list[Api]) -> None:
    headers = {"Authorization": "Bearer sk-b"}
    body = {"input": "LONG", "max_output_tokens": 1000}
    statuses, used = [], 0
    for number in range(5):
        answer = await servers[number % 2].client.post("/responses", json=body, headers=headers)
        statuses.append(answer.status_code)
        used += answer.json()["usage"]["total_tokens"] if answer.status_code == 200 else 0
        await asyncio.gather(*(api.service.served.limiter.close() for api in servers))  # settled
    assert statuses[:2] == [200, 200]
    assert 429 in statuses
    assert used <= 5_000


async def test_background_runs_hold_in_sum(servers: list[Api]) -> None:
    async def begin(number: int) -> int:
        body = {"input": "LONG", "background": True}
        return (await servers[number % 2].client.post("/responses", json=body, headers=OWN)).status_code

    assert Counter(await asyncio.gather(*map(begin, range(10)))) == {200: 3, 429: 7}
