"""The database stops for ten seconds under load: a client sees answers or a 503 that it may repeat.

`make faults` runs it; RATE changes its size.
"""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doubles.commands import final, script
from tests.doubles.postgres import running_postgres
from tests.doubles.replicas import ServerProcess

pytestmark = pytest.mark.faults
RATE = float(os.environ.get("RATE", "200"))  # requests per second
BEFORE, OUTAGE, AFTER = 5.0, 10.0, 15.0


async def test_a_database_that_stops_for_ten_seconds(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        model = script(tmp_path, final("word " * 20))
        flags = ("--model", model, "--store", postgres.new_database(), "--python", "off")
        server = ServerProcess(flags, tmp_path / "server.log")
        server.start()
        await server.ready()
        seen: Counter[str] = Counter()
        kept: list[tuple[str, dict[str, Any]]] = []
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:

            async def ask(previous: str | None) -> None:
                body = {"input": "Hi", "previous_response_id": previous}
                answer = await client.post(f"{server.url}/responses", json=body)
                name = str(answer.status_code)
                if answer.status_code == 200:
                    kept.append((answer.json()["id"], answer.json()))
                else:
                    name += f" {answer.json()['error']['code']}"
                    seen["without retry-after"] += "retry-after" not in answer.headers
                seen[name] += 1

            async def load() -> None:
                began = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    for number in range(int(RATE * (BEFORE + OUTAGE + AFTER))):
                        await asyncio.sleep(began + number / RATE - time.monotonic())
                        group.create_task(ask(kept[-1][0] if kept and number % 2 else None))

            async def stop() -> None:
                await asyncio.sleep(BEFORE)
                await asyncio.to_thread(postgres.stop, "fast")
                await asyncio.sleep(OUTAGE)
                await asyncio.to_thread(postgres.start)

            await asyncio.gather(load(), stop())
            lost = 0
            for response_id, response in kept:
                stored = await client.get(f"{server.url}/responses/{response_id}")
                lost += stored.status_code != 200 or stored.json() != response
        server.stop()
    print(f"\nPostgres stopped for {OUTAGE:.0f} s at {RATE:.0f} requests/s: {dict(seen)}; lost: {lost}")
    assert set(seen) <= {"200", "503 store_unavailable", "503 server_is_overloaded", "without retry-after"}
    assert seen["without retry-after"] == 0
    assert lost == 0
