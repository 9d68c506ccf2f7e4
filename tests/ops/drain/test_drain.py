"""SIGTERM to a real server: what it still does, what happens to late work, and the exit code."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.observe.health.drain import ExitCode
from tests.doubles.commands import ANSWER, script
from tests.doubles.server_process import Served, serving

STREAMS, RUNS = 60, 20
TEXT = "<|channel|>final<|message|>" + "word " * 40 + "<|return|>"


def client_of(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=served.api, timeout=120, limits=httpx.Limits(max_connections=None))


async def stream(client: httpx.AsyncClient, begun: asyncio.Event, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream; none after the first may be missing."""
    events: list[dict[str, Any]] = []
    async with client.stream("POST", "/responses", json={"input": "x", "stream": True, **body}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                begun.set()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


async def under_work(served: Served, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Stops the server once streams and background responses have begun; their last events."""
    begun = [asyncio.Event() for _ in range(STREAMS + RUNS)]
    streams = (stream(client, event, background=at >= STREAMS) for at, event in enumerate(begun))
    work = list(map(asyncio.create_task, streams))
    await asyncio.gather(*(event.wait() for event in begun))
    assert not any(task.done() for task in work)
    served.process.send_signal(signal.SIGTERM)
    return [events[-1] for events in await asyncio.gather(*work)]


async def exit_code(served: Served) -> int:
    return await asyncio.to_thread(served.process.wait, 60)


@pytest.mark.slow
async def test_within_the_grace_period_nothing_is_cut(tmp_path: Path) -> None:
    model = script(tmp_path, TEXT, tokens_per_second=8)
    flags = ("--model", model, "--drain-delay", "0", "--shutdown-grace", "90", "--no-access-log")
    with serving(*flags) as served:
        async with client_of(served) as client:
            ended = await under_work(served, client)
        assert {event["type"] for event in ended} == {"response.completed"}
        texts = {event["response"]["output"][-1]["content"][0]["text"] for event in ended}
        assert texts == {"word " * 40}
        assert await exit_code(served) == ExitCode.IN_TIME


@pytest.mark.slow
async def test_at_its_end_all_late_work_gets_a_terminal_event(tmp_path: Path) -> None:
    model = script(tmp_path, TEXT, tokens_per_second=1)
    flags = ("--model", model, "--drain-delay", "0", "--shutdown-grace", "1", "--no-access-log")
    with serving(*flags) as served:
        async with client_of(served) as client:
            ended = await under_work(served, client)
        assert {event["type"] for event in ended} == {"response.failed"}
        assert {event["response"]["error"]["code"] for event in ended} == {"server_is_overloaded"}
        assert await exit_code(served) == ExitCode.LATE


@pytest.mark.slow
async def test_the_next_server_continues_the_background_responses(tmp_path: Path) -> None:
    slow = script(tmp_path, TEXT, tokens_per_second=2)
    flags = ("--drain-delay", "0", "--shutdown-grace", "1", "--store", f"sqlite:{tmp_path / 'store.db'}")
    with serving("--model", slow, *flags) as served:
        async with client_of(served) as client:
            body = {"input": "x", "background": True}
            started = [(await client.post("/responses", json=body)).json() for _ in range(RUNS)]
            served.process.send_signal(signal.SIGTERM)
            assert await exit_code(served) == ExitCode.IN_TIME  # nothing has failed
    script(tmp_path, TEXT)
    with serving("--model", slow, *flags) as served:
        async with client_of(served) as client:
            ended = await asyncio.gather(*(until_ended(client, each["id"]) for each in started))
    assert {response["status"] for response in ended} == {"completed"}
    assert {response["output"][-1]["content"][0]["text"] for response in ended} == {"word " * 40}


async def until_ended(client: httpx.AsyncClient, response_id: str) -> dict[str, Any]:
    until = time.monotonic() + 90
    while True:
        response: dict[str, Any] = (await client.get(f"/responses/{response_id}")).json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        assert time.monotonic() < until, "it was not continued"
        await asyncio.sleep(0.2)


def test_before_it_stops_listening_it_is_not_ready_and_serves_nevertheless(tmp_path: Path) -> None:
    flags = ("--model", script(tmp_path, ANSWER), "--drain-delay", "6")
    with serving(*flags) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        assert client.get("/ready").status_code == 200
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        refused = client.get("/ready")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert "stopping" in refused.json()["error"]["message"]
        health = client.get("/health")
        assert health.status_code == 200
        assert (health.json()["status"], health.json()["ready"]) == ("draining", False)
        assert client.get("/live").status_code == 200
        assert client.post("/v1/responses", json={"input": "x"}).json()["status"] == "completed"
        assert served.process.wait(60) == ExitCode.IN_TIME


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_immediately(tmp_path: Path, second: signal.Signals) -> None:
    model = script(tmp_path, TEXT, tokens_per_second=1)
    with serving("--model", model) as served:
        async with client_of(served) as client:
            begun = asyncio.Event()
            reading = asyncio.create_task(stream(client, begun))
            await begun.wait()
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            assert served.process.poll() is None
            served.process.send_signal(second)
            assert await exit_code(served) == 128 + second
            with pytest.raises(httpx.TransportError):
                await reading
