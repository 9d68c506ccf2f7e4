"""Background responses and those whose client disconnects: continued, reread, cancelled and deleted."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.responses import ResponseErrorEvent
from starlette.types import Message

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from tests.doubles.apis.api_client import events_in
from tests.doubles.lints import check_stream
from tests.doubles.pages import reference
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found
from tests.responses.conftest import Make

THINKS = "<|channel|>analysis<|message|>Short.<|end|><|start|>assistant"
HELLO = THINKS + "<|channel|>final<|message|>Hello, how are you?<|return|>"
LONG = HELLO.replace("Hello, ", "word " * 2_000)


async def test_it_is_queued_immediately_runs_by_itself_and_is_fetched(api: Make) -> None:
    here = api(scripted(HELLO))
    response = await here.create(background=True)
    assert (response["status"], response["background"], response["store"]) == ("queued", True, True)
    assert response["output"] == []
    done = await here.ended(response["id"])
    assert done["status"] == "completed"
    assert [item["type"] for item in done["output"]] == ["reasoning", "message"]
    refused = await here.refused(f"/responses/{done['id']}/cancel")
    assert refused["status"] == 400
    assert "ended as 'completed'" in refused["message"]


async def test_while_it_runs_its_current_state_is_shown(api: Make) -> None:
    here = api(scripted(LONG, tokens_per_second=1_000))
    response = await here.create(background=True)
    shown = await here.telling(response["id"])
    assert shown["status"] == "in_progress"
    assert [item["type"] for item in shown["output"]] == ["reasoning"]
    items = await here.get(f"/responses/{response['id']}/input_items")
    assert items["data"][0]["content"][0]["text"] == "Hi"
    await here.post(f"/responses/{response['id']}/cancel")


async def test_the_log_is_the_stream_and_can_be_read_from_any_event(api: Make) -> None:
    here = api(scripted(HELLO))
    events = await here.streamed(background=True)
    done = check_stream(events)
    begun = ["response.created", "response.queued", "response.in_progress"]
    assert [event["type"] for event in events[:3]] == begun
    assert done == await here.get(f"/responses/{done['id']}")
    assert await here.replayed(done["id"]) == events
    for after in range(-1, len(events)):
        assert await here.replayed(done["id"], after) == events[after + 1 :]
    for wrong in ("-2", "x", "1.5", "9" * 30, "²", len(events), len(events) + 999):
        path = f"/responses/{done['id']}?stream=true&starting_after={wrong}"
        refused = await here.refused(path, method="GET")
        assert (refused["status"], refused["param"]) == (400, "starting_after")


async def test_a_running_stream_that_ends_before_the_wanted_event_says_so(api: Make) -> None:
    here = api(scripted(HELLO, tokens_per_second=50))
    response = await here.create(background=True)
    (error,) = await here.replayed(response["id"], 1000)
    assert (error["type"], error["param"]) == ("error", "starting_after")
    assert error["sequence_number"] == 1001


async def test_a_reader_that_disconnects_does_not_end_it(api: Make) -> None:
    here = api(scripted(LONG, tokens_per_second=20_000))
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True, "stream": True})
    log = await here.service.background.start(run)
    reading = log.read()
    first = await anext(reading)
    await reading.aclose()
    assert here.service.background.running(run.id) is run
    rest = await here.replayed(run.id, len(first) - 1)  # replays, then continues live to the end
    check_stream([*events_in(b"".join(first).decode()), *rest])
    assert (await here.get(f"/responses/{run.id}"))["status"] == "completed"


async def test_cancelling_frees_the_engine_and_ends_every_reader(api: Make) -> None:
    engine = scripted(LONG, tokens_per_second=500)
    here = api(engine)
    response = await here.create(background=True)
    path = f"/responses/{response['id']}"
    reader = asyncio.create_task(here.replayed(response["id"]))
    await here.telling(response["id"])
    assert engine.active == 1
    cancelled = await here.post(f"{path}/cancel")
    assert (engine.active, cancelled["status"]) == (0, "cancelled")
    assert cancelled["usage"]["output_tokens"] > 0
    assert [item["status"] for item in cancelled["output"] if item["type"] == "message"] == ["incomplete"]
    assert cancelled == await here.get(path)
    assert check_stream(await asyncio.wait_for(reader, 5)) == cancelled
    assert await here.post(f"{path}/cancel") == cancelled


async def test_a_foreground_response_cannot_be_cancelled_or_replayed(api: Make) -> None:
    here = api(scripted(HELLO))
    path = f"/responses/{(await here.create())['id']}"
    assert (await here.refused(f"{path}/cancel"))["status"] == 400
    streamed = await here.refused(f"{path}?stream=true", method="GET")
    assert (streamed["status"], streamed["code"]) == (400, "events_not_kept")
    for method, unknown in (("POST", "resp_none/cancel"), ("GET", "resp_none?stream=true")):
        missing = await here.refused(f"/responses/{unknown}", method=method)
        assert (missing["status"], missing["code"]) == (404, "response_not_found")


async def test_deleting_it_ends_it(api: Make) -> None:
    engine = scripted(LONG, tokens_per_second=500)
    here = api(engine)
    path = f"/responses/{(await here.create(background=True))['id']}"
    await here.get(path)
    assert (await here.delete(path))["deleted"] is True
    assert engine.active == 0
    for gone in (path, f"{path}?stream=true"):
        assert (await here.refused(gone, method="GET"))["status"] == 404
    size = here.service.served.stores.size
    assert size is not None
    assert (await size()).log_bytes == 0


async def test_it_can_be_continued_once_it_has_ended(api: Make) -> None:
    here = api(scripted(LONG, HELLO, tokens_per_second=2_000, loop=False))
    response = await here.create(background=True)
    body = {"input": "And?", "previous_response_id": response["id"]}
    early = await here.refused("/responses", **body)
    assert early["status"] == 400
    assert "still being generated" in early["message"]
    await here.post(f"/responses/{response['id']}/cancel")
    assert (await here.create(**body))["status"] == "completed"


async def test_it_must_be_stored_and_too_many_are_refused_until_one_ends(api: Make) -> None:
    here = api(scripted(LONG, tokens_per_second=100), background_max_runs=2, store_default=False)
    refused = await here.refused("/responses", input="Hi", background=True, store=False)
    assert (refused["status"], refused["param"]) == (400, "background")
    running = [await here.create(background=True) for _ in range(2)]
    assert running[0]["store"] is True
    refused = await here.refused("/responses", input="Hi", background=True)
    assert (refused["status"], refused["code"]) == (503, "server_is_overloaded")
    for response in running:
        await here.post(f"/responses/{response['id']}/cancel")
    assert (await here.create(background=True))["status"] == "queued"


async def test_they_end_when_the_server_stops(api: Make) -> None:
    engine = scripted(LONG, tokens_per_second=100)
    here = api(engine)
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True})
    log = await here.service.background.start(run)

    async def read() -> bytes:
        return b"".join([event async for batch in log.read() for event in batch])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    await here.service.close()
    ended = events_in((await asyncio.wait_for(reader, 5)).decode())[-1]
    assert ended["type"] == "response.failed"
    assert ended["response"]["error"]["code"] == "server_is_overloaded"
    assert engine.active == 0


async def test_a_reader_that_is_too_slow_gets_an_error_event(api: Make) -> None:
    here = api(scripted(LONG, tokens_per_second=4_000), background_log_max_bytes=50_000)
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True})
    await here.service.background.start(run)
    sent: list[bytes] = []

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # it never disconnects

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if len(sent) == 2:  # after the first events it pauses until the response has ended
            await here.ended(run.id)

    scope = {"type": "http", "method": "GET", "path": f"/v1/responses/{run.id}"}
    headers = [(b"host", b"127.0.0.1")]
    await here.app({**scope, "query_string": b"stream=true", "headers": headers}, receive, send)
    *events, error = events_in(b"".join(sent).decode())
    assert [event["sequence_number"] for event in (*events, error)] == list(range(len(events) + 1))
    ResponseErrorEvent.model_validate(error)
    reference.check_event(error)
    assert (error["type"], error["code"], error["error"]["code"]) == ("error", *["events_not_kept"] * 2)
    assert "Retrieve the response without `stream`" in error["message"]


SLOW = "<|channel|>final<|message|>" + "word " * 300 + "<|return|>"
WHOLE = "word " * 300
Client = httpx.AsyncClient


@pytest.fixture
def engine() -> ScriptedEngine:
    return scripted(SLOW, tokens_per_second=300, loop=True)


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
