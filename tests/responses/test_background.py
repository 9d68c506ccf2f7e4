"""Background responses: they outlive their connection and can be reread, cancelled and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from openai.types.responses import ResponseErrorEvent
from starlette.types import Message

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import EngineUnavailable
from inference.engine import EngineFailed
from tests.doubles.apis.api_client import Api, events_in
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.pages import reference
from tests.doubles.serving import scripted

ANSWER = (
    "<|channel|>analysis<|message|>Short.<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>"
)
LONG = ANSWER.format("word " * 2_000)


async def test_it_is_queued_immediately_runs_by_itself_and_is_fetched(api: Callable[..., Api]) -> None:
    here = api(scripted(ANSWER.format("Hello!")))
    response = await here.create(background=True)
    assert (response["status"], response["background"], response["store"]) == ("queued", True, True)
    assert response["output"] == []
    done = await here.ended(response["id"])
    assert done["status"] == "completed"
    assert [item["type"] for item in done["output"]] == ["reasoning", "message"]


async def test_while_it_runs_its_current_state_is_shown(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, tokens_per_second=1_000))
    response = await here.create(background=True)
    shown = await here.telling(response["id"])
    assert shown["status"] == "in_progress"
    assert [item["type"] for item in shown["output"]] == ["reasoning"]
    items = (await here.client.get(f"/responses/{response['id']}/input_items")).json()
    assert items["data"][0]["content"][0]["text"] == "Hi"
    await here.client.post(f"/responses/{response['id']}/cancel")


async def test_the_log_is_the_stream_and_can_be_read_from_any_event(api: Callable[..., Api]) -> None:
    here = api(scripted(ANSWER.format("Hello, how are you?")))
    streamed = await here.client.post("/responses", json={"input": "Hi", "background": True, "stream": True})
    events = events_in(streamed.text)
    done = check_stream(events)
    assert [event["type"] for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert done == await here.get(f"/responses/{done['id']}")
    assert await here.replayed(done["id"]) == events
    for after in range(len(events)):
        assert await here.replayed(done["id"], after) == events[after + 1 :]


async def test_a_reader_that_disconnects_does_not_end_it(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, tokens_per_second=20_000))
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True, "stream": True})
    log = await here.service.background.start(run)
    reading = log.read()
    first = await anext(reading)
    await reading.aclose()
    assert here.service.background.running(run.id) is run
    after = len(first) - 1
    rest = await here.replayed(run.id, after)  # replays, then continues live to the end
    check_stream([*events_in(b"".join(first).decode()), *rest])
    assert (await here.get(f"/responses/{run.id}"))["status"] == "completed"


async def test_cancelling_frees_the_engine_and_ends_every_reader(api: Callable[..., Api]) -> None:
    engine = scripted(LONG, tokens_per_second=500)
    here = api(engine)
    response = await here.create(background=True)
    reader = asyncio.create_task(here.replayed(response["id"]))
    await here.telling(response["id"])
    assert engine.active == 1
    cancelled = (await here.client.post(f"/responses/{response['id']}/cancel")).json()
    assert engine.active == 0
    assert cancelled["status"] == "cancelled"
    assert cancelled["usage"]["output_tokens"] > 0
    assert [item["status"] for item in cancelled["output"] if item["type"] == "message"] == ["incomplete"]
    assert cancelled == await here.get(f"/responses/{response['id']}")
    assert check_stream(await asyncio.wait_for(reader, 5)) == cancelled
    again = await here.client.post(f"/responses/{response['id']}/cancel")
    assert (again.status_code, again.json()) == (200, cancelled)


async def test_cancelling_before_anything_was_generated(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, tokens_per_second=1))
    response = await here.create(background=True)
    cancelled = (await here.client.post(f"/responses/{response['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    assert cancelled["output"] == []
    assert check_stream(await here.replayed(response["id"])) == cancelled


async def test_a_failure_ends_the_replay_too(api: Callable[..., Api]) -> None:
    engine = ReplayEngine([1, 2, 3], fails_after=0, error=EngineFailed("out of memory"))
    here = api(engine)
    response = await here.create(background=True)
    failed = check_stream(await here.replayed(response["id"]))
    assert failed["status"] == "failed"
    assert failed == await here.ended(response["id"])


async def test_an_ended_response_cannot_be_cancelled(api: Callable[..., Api]) -> None:
    here = api(scripted(ANSWER.format("Hello!")))
    response = await here.create(background=True)
    await here.ended(response["id"])
    refused = await here.client.post(f"/responses/{response['id']}/cancel")
    assert refused.status_code == 400
    assert "ended as 'completed'" in refused.json()["error"]["message"]


async def test_a_foreground_response_cannot_be_cancelled_or_replayed(
    api: Callable[..., Api],
) -> None:
    here = api(scripted(ANSWER.format("Hello!")))
    response = await here.create()
    assert response["status"] == "completed"
    refused = await here.client.post(f"/responses/{response['id']}/cancel")
    assert refused.status_code == 400
    streamed = await here.client.get(f"/responses/{response['id']}?stream=true")
    assert (streamed.status_code, streamed.json()["error"]["code"]) == (400, "events_not_kept")
    for path in ("/responses/resp_none/cancel", "/responses/resp_none?stream=true"):
        method = "POST" if path.endswith("cancel") else "GET"
        unknown = await here.client.request(method, path)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "response_not_found")


async def test_deleting_it_ends_it(api: Callable[..., Api]) -> None:
    engine = scripted(LONG, tokens_per_second=500)
    here = api(engine)
    response = await here.create(background=True)
    await here.get(f"/responses/{response['id']}")
    assert (await here.client.delete(f"/responses/{response['id']}")).json()["deleted"] is True
    assert engine.active == 0
    assert (await here.client.get(f"/responses/{response['id']}")).status_code == 404
    assert (await here.client.get(f"/responses/{response['id']}?stream=true")).status_code == 404
    assert here.service.background.logs.used_bytes == 0


async def test_it_can_be_continued_once_it_has_ended(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, ANSWER.format("Again."), tokens_per_second=2_000, loop=False))
    response = await here.create(background=True)
    body = {"input": "And?", "previous_response_id": response["id"]}
    early = await here.client.post("/responses", json=body)
    assert early.status_code == 400
    assert "still being generated" in early.json()["error"]["message"]
    await here.client.post(f"/responses/{response['id']}/cancel")
    assert (await here.client.post("/responses", json=body)).json()["status"] == "completed"


async def test_it_must_be_stored(api: Callable[..., Api]) -> None:
    here = api(scripted(ANSWER.format("Hello!")), store_default=False)
    refused = await here.client.post("/responses", json={"input": "Hi", "background": True, "store": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "background")
    response = await here.create(background=True)
    assert (await here.ended(response["id"]))["store"] is True


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30, "²"])
async def test_starting_after_must_be_a_number(api: Callable[..., Api], after: str) -> None:
    here = api(scripted(ANSWER.format("Hello!")))
    response = await here.create(background=True)
    refused = await here.client.get(
        f"/responses/{response['id']}", params={"stream": "true", "starting_after": after}
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "starting_after")


async def test_too_many_background_responses_are_refused_until_one_ends(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, tokens_per_second=100), background_max_runs=2)
    kept = [await here.create(background=True) for _ in range(2)]
    refused = await here.client.post("/responses", json={"input": "Hi", "background": True})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
    for response in kept:
        await here.client.post(f"/responses/{response['id']}/cancel")
    assert (await here.create(background=True))["status"] == "queued"


async def test_simultaneous_requests_do_not_exceed_the_limit(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG, tokens_per_second=100), background_max_runs=1)
    body = {"input": "Hi", "background": True}
    runs = [await here.service.start(LOCAL, body) for _ in range(2)]
    await here.service.run_in_background(runs[0])
    with pytest.raises(EngineUnavailable):
        await here.service.run_in_background(runs[1])
    await here.post(f"/responses/{runs[0].id}/cancel")


async def test_they_end_when_the_server_stops(api: Callable[..., Api]) -> None:
    engine = scripted(LONG, tokens_per_second=100)
    here = api(engine)
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True})
    log = await here.service.background.start(run)
    reader = asyncio.create_task(_all(log.read()))
    await asyncio.sleep(0.01)
    await here.service.close()
    ended = events_in((await asyncio.wait_for(reader, 5)).decode())[-1]
    assert ended["type"] == "response.failed"
    assert ended["response"]["error"]["code"] == "server_is_overloaded"
    assert engine.active == 0


async def _all(batches: AsyncIterator[list[bytes]]) -> bytes:
    return b"".join([event async for batch in batches for event in batch])


async def test_a_reader_that_is_too_slow_gets_an_error_event(api: Callable[..., Api]) -> None:
    here = api(scripted(LONG), background_log_max_bytes=50_000)
    run = await here.service.start(LOCAL, {"input": "Hi", "background": True})
    await here.service.background.start(run)
    sent: list[bytes] = []

    async def receive() -> Message:
        return await asyncio.get_running_loop().create_future()  # it never disconnects

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if len(sent) == 2:  # after the first events it pauses until the response has ended
            await here.ended(run.id)

    path = f"/v1/responses/{run.id}"
    headers = [(b"host", b"127.0.0.1")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"stream=true",
        "headers": headers,
    }
    await here.app(scope, receive, send)
    *events, error = events_in(b"".join(sent).decode())
    assert [event["sequence_number"] for event in (*events, error)] == list(range(len(events) + 1))
    ResponseErrorEvent.model_validate(error)
    reference.check_event(error)
    assert (error["type"], error["code"], error["error"]["code"]) == ("error", *["events_not_kept"] * 2)
    assert "Retrieve the response without `stream`" in error["message"]
