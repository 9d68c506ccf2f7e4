"""A streamed response whose client disconnects is cancelled, or continues to its end where that is wished."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from tests.doubles.apis.api_client import events_in
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found

LONG = "<|channel|>final<|message|>" + "word " * 300 + "<|return|>"
WHOLE = "word " * 300
Client = httpx.AsyncClient


@pytest.fixture
def engine() -> ScriptedEngine:
    return scripted(LONG, tokens_per_second=300, loop=True)


@pytest.fixture(params=["memory", "sqlite"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    return {"store": store, "python": "off"}


@pytest.fixture
async def continuing(engine: ScriptedEngine, settings: dict[str, Any]) -> AsyncIterator[Client]:
    with serving(engine, Settings(on_disconnect="continue", **settings)) as url:
        async with Client(base_url=url, timeout=30) as client:
            yield client


async def idle(engine: ScriptedEngine) -> None:
    async def active() -> int:
        return engine.active

    await until_found(active, lambda count: count == 0)


async def begun_by(client: Client, **body: Any) -> tuple[str, list[dict[str, Any]]]:
    """The path of a response and its first events, after which its reader leaves."""
    events: list[dict[str, Any]] = []
    async with client.stream("POST", "/responses", json={"input": "Hi", "stream": True, **body}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
            if len(events) == 12:
                return f"/responses/{events[0]['response']['id']}", events
    raise AssertionError("the stream ended early")


async def rest_of(client: Client, path: str, after: int) -> list[dict[str, Any]]:
    answer = await client.get(path, params={"stream": "true", "starting_after": after})
    assert answer.status_code == 200, answer.text
    return events_in(answer.text)


async def test_it_continues_and_its_rest_can_be_read(continuing: Client) -> None:
    path, begun = await begun_by(continuing)
    response = check_stream(begun + await rest_of(continuing, path, begun[-1]["sequence_number"]))
    assert (response["status"], response["background"]) == ("completed", False)
    assert response["output"][0]["content"][0]["text"] == WHOLE
    assert (await continuing.get(path)).json() == response


@pytest.mark.parametrize("body", [{"on_disconnect": "cancel"}, {"store": False}])
async def test_unless_wished_it_is_cancelled(continuing: Client, engine: ScriptedEngine, body: Any) -> None:
    path, _ = await begun_by(continuing, **body)
    await idle(engine)
    assert (await continuing.get(path)).status_code == 404


async def test_a_request_may_choose_it(engine: ScriptedEngine, settings: dict[str, Any]) -> None:
    with serving(engine, Settings(**settings)) as url:
        async with Client(base_url=url, timeout=30) as client:
            path, begun = await begun_by(client, on_disconnect="continue")
            rest = await rest_of(client, path, begun[-1]["sequence_number"])
    assert check_stream(begun + rest)["status"] == "completed"


async def test_it_can_be_cancelled(continuing: Client, engine: ScriptedEngine) -> None:
    path, _ = await begun_by(continuing)
    cancelled = await continuing.post(f"{path}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    await idle(engine)
    again = await continuing.post(f"{path}/cancel")
    assert again.status_code == 400  # it has ended, and is no background response


async def test_its_answers_have_the_headers_and_errors_of_any(continuing: Client) -> None:
    body = {"input": "Hi", "stream": True}
    answer = await continuing.post("/responses", json={**body, "tmperature": 1})
    assert answer.headers["x-unknown-fields"] == "tmperature (did you mean temperature?)"
    refused = await continuing.post("/responses", json={**body, "on_disconnect": "wait"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "on_disconnect")
