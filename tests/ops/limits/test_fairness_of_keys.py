"""One key's many requests do not hold up another's few, with the real engine and connections of all kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from inference.backends.table import load
from inference.options import EngineOptions
from tests.doubles.serving import serving

MANY, SLOTS = 32, 4


@pytest.mark.slow
async def test_one_keys_many_requests_do_not_hold_up_anothers_one(tmp_path: Path) -> None:
    """Each of the many has a connection of its own, as those of a load generator do."""
    (tmp_path / "keys").write_text("sk-many\nsk-one\n")
    settings = Settings(api_key_file=str(tmp_path / "keys"), python="off", max_concurrent=SLOTS)
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
