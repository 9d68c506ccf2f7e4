"""A streamed response whose client disconnects is cancelled, or continues to its end where that is wished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found

LONG = "<|channel|>final<|message|>" + "word " * 300 + "<|return|>"
WHOLE = "word " * 300


@pytest.fixture
def engine() -> ScriptedEngine:
    return scripted(LONG, tokens_per_second=300, loop=True)


@pytest.fixture(params=["memory", "sqlite"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    return {"store": store, "python": "off"}


@pytest.fixture
def continuing(engine: ScriptedEngine, settings: dict[str, Any]) -> Iterator[str]:
    with serving(engine, Settings(on_disconnect="continue", **settings)) as url:
        yield url


async def first_events(url: str, count: int, **body: Any) -> list[dict[str, Any]]:
    """The first events of a stream that the client then leaves."""
    events: list[dict[str, Any]] = []
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", f"{url}/responses", json={"input": "Hi", "stream": True, **body}) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
            if len(events) == count:
                return events
    raise AssertionError("the stream ended early")


async def rest_of(url: str, response_id: str, after: int) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(
            f"{url}/responses/{response_id}", params={"stream": "true", "starting_after": after}
        )
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


async def test_it_continues_and_its_rest_can_be_read(continuing: str) -> None:
    begun = await first_events(continuing, 12)
    response_id = begun[0]["response"]["id"]
    events = begun + await rest_of(continuing, response_id, begun[-1]["sequence_number"])
    response = check_stream(events)
    assert (response["status"], response["background"]) == ("completed", False)
    assert response["output"][0]["content"][0]["text"] == WHOLE
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{continuing}/responses/{response_id}")).json() == response


@pytest.mark.parametrize("body", [{"on_disconnect": "cancel"}, {"store": False}])
async def test_a_request_that_does_not_wish_it_is_cancelled(
    continuing: str, engine: ScriptedEngine, body: dict[str, Any]
) -> None:
    begun = await first_events(continuing, 12, **body)
    await until_found(_active(engine), lambda count: count == 0)
    async with httpx.AsyncClient() as client:
        gone = await client.get(f"{continuing}/responses/{begun[0]['response']['id']}")
    assert gone.status_code == 404


async def test_a_request_may_choose_it(engine: ScriptedEngine, settings: dict[str, Any]) -> None:
    with serving(engine, Settings(**settings)) as url:
        begun = await first_events(url, 12, on_disconnect="continue")
        rest = await rest_of(url, begun[0]["response"]["id"], begun[-1]["sequence_number"])
    assert check_stream(begun + rest)["status"] == "completed"


async def test_it_can_be_cancelled(continuing: str, engine: ScriptedEngine) -> None:
    begun = await first_events(continuing, 12)
    async with httpx.AsyncClient() as client:
        path = f"{continuing}/responses/{begun[0]['response']['id']}/cancel"
        cancelled = await client.post(path)
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        await until_found(_active(engine), lambda count: count == 0)
        assert (await client.post(path)).status_code == 400  # it has ended, and is no background response


async def test_its_stream_has_the_headers_of_any_answer(continuing: str) -> None:
    async with httpx.AsyncClient() as client:
        body = {"input": "Hi", "stream": True, "tmperature": 1}
        answer = await client.post(f"{continuing}/responses", json=body)
    assert answer.headers["x-unknown-fields"] == "tmperature (did you mean temperature?)"


async def test_an_unknown_wish_is_refused(continuing: str) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{continuing}/responses", json={"input": "Hi", "on_disconnect": "wait"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "on_disconnect"


def _active(engine: ScriptedEngine) -> Any:
    async def active() -> int:
        return engine.active

    return active
