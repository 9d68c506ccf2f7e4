"""WebSocket mode of the Responses API: the official SDK's connection, and raw frames."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponsesServerEvent
from pydantic import TypeAdapter
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gpt_oss_server.apis.responses.socket.connection import MAX_LANES
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.memory.connection import MAX_RESPONSES
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving

Event = dict[str, Any]
HELLO = (
    "<|channel|>analysis<|message|>A greeting.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
AGAIN = "<|channel|>final<|message|>Hello again!<|return|>"
SLOW = "<|channel|>final<|message|>" + "word " * 400 + "<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
_server_event: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


class Client:
    """Sends and receives the frames of one connection; checks every event against the SDK's types."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def ask(self, **body: Any) -> None:
        self.socket.send(json.dumps({"type": "response.create", **body}))

    def event(self) -> Event:
        event: Event = json.loads(self.socket.recv(timeout=20))
        _server_event.validate_python(event)
        return event

    def response(self) -> Event:
        """The response at the end of its events, which are checked like any stream."""
        events = [self.event()]
        while events[-1]["type"] not in ("response.completed", "response.failed", "response.incomplete"):
            assert events[-1]["type"] != "error", events[-1]
            events.append(self.event())
        return check_stream(events)

    def error(self) -> Event:
        event = self.event()
        assert event["type"] == "error", event
        assert set(event["error"]) == {"type", "code", "message", "param"}
        return event


@contextmanager
def connected(engine: Any, settings: Settings | None = None) -> Iterator[Client]:
    # No bound on unread frames: a client that has stopped reading waits ten seconds to close.
    with (
        serving(engine, settings) as url,
        connect(f"ws{url.removeprefix('http')}/responses", max_queue=None) as socket,
    ):
        yield Client(socket)


def text_of(response: Event) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )


def test_the_official_sdk_creates_and_continues_a_response() -> None:
    with (
        serving(scripted(HELLO, AGAIN)) as url,
        OpenAI(base_url=url, api_key="any") as client,
        client.responses.connect() as connection,
    ):
        connection.response.create(model="scripted", input="Hi", store=False)
        events = [connection.recv()]
        while events[-1].type != "response.completed":
            events.append(connection.recv())
        first = check_stream([event.to_dict() for event in events])
        connection.response.create(
            model="scripted", input="And?", store=False, previous_response_id=first["id"]
        )
        last = next(event for event in connection if event.type == "response.completed")
    assert last.response.output_text == "Hello again!"
    assert last.response.previous_response_id == first["id"]


async def test_the_official_async_sdk_runs_lanes_concurrently() -> None:
    with serving(scripted(SLOW, tokens_per_second=400)) as url:
        async with (
            AsyncOpenAI(base_url=url, api_key="any") as client,
            client.responses.connect() as connection,
        ):
            for lane in ("a", "b"):
                await connection.response.create(model="scripted", input="Hi", stream_id=lane, store=False)
            order: list[str] = []
            streams: dict[str, list[Event]] = {"a": [], "b": []}
            while (
                sum(events[-1]["type"] == "response.completed" for events in streams.values() if events) < 2
            ):
                event = (await connection.recv()).to_dict()
                lane = str(event.pop("stream_id"))
                order.append(lane)
                streams[lane].append(event)
    for events in streams.values():
        check_stream(events)
    assert "ba" in "".join(order[: len(order) // 2]), "the lanes take turns"


def test_an_unstored_response_lives_as_long_as_its_connection() -> None:
    with serving(scripted(HELLO, AGAIN)) as url:
        address = f"ws{url.removeprefix('http')}/responses"
        with connect(address) as socket:
            client = Client(socket)
            client.ask(input="Hi", store=False)
            first = client.response()
            client.ask(input="And?", store=False, previous_response_id=first["id"])
            assert text_of(client.response()) == "Hello again!"
            assert httpx.get(f"{url}/responses/{first['id']}").status_code == 404
        with connect(address) as socket:
            client = Client(socket)
            client.ask(input="And?", previous_response_id=first["id"])
            error = client.error()
    assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")


def test_any_connection_and_http_can_continue_a_stored_response() -> None:
    with serving(scripted(HELLO, AGAIN)) as url:
        address = f"ws{url.removeprefix('http')}/responses"
        with connect(address) as socket:
            client = Client(socket)
            client.ask(input="Hi")
            first = client.response()
        with connect(address) as socket:
            client = Client(socket)
            client.ask(input="And?", previous_response_id=first["id"])
            assert client.response()["previous_response_id"] == first["id"]
        assert httpx.get(f"{url}/responses/{first['id']}").json()["status"] == "completed"


def test_a_warm_up_generates_nothing_and_can_be_continued() -> None:
    with connected(scripted(HELLO)) as client:
        client.ask(input="You will be asked.", store=False, generate=False)
        warm = client.response()
        assert warm["output"] == []
        assert warm["usage"]["output_tokens"] == 0
        assert warm["usage"]["input_tokens"] > 0
        client.ask(input="Hi", store=False, previous_response_id=warm["id"])
        response = client.response()
    assert text_of(response) == "Hello!", "the first turn of the script was not spent on the warm-up"
    assert response["usage"]["input_tokens"] > warm["usage"]["input_tokens"]


def test_a_warm_up_ignores_the_form_of_the_answer() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    with connected(scripted(HELLO)) as client:
        client.ask(input="Hi", generate=False, text={"format": form})
        assert client.response()["status"] == "completed"


def test_the_engine_reads_the_prompt_of_a_warm_up_and_samples_nothing() -> None:
    engine = ReplayEngine([200005])
    with connected(engine) as client:
        client.ask(input="Hi", generate=False)
        client.response()
    assert [sampling.max_tokens for sampling in engine.samplings] == [0]


def test_requests_of_one_lane_are_answered_in_turn_with_its_name() -> None:
    with connected(scripted(HELLO, AGAIN, tokens_per_second=200)) as client:
        client.ask(input="Hi", stream_id="agent_1")
        client.ask(input="Hi", stream_id="agent_1")
        events = [client.event()]
        while sum(event["type"] == "response.completed" for event in events) < 2:
            events.append(client.event())
    assert {event.pop("stream_id") for event in events} == {"agent_1"}
    border = next(at for at, event in enumerate(events) if event["type"] == "response.completed") + 1
    texts = [text_of(check_stream(part)) for part in (events[:border], events[border:])]
    assert texts == ["Hello!", "Hello again!"]


def test_without_a_stream_id_events_have_none() -> None:
    with connected(scripted(HELLO)) as client:
        client.ask(input="Hi")
        event = client.event()
        assert "stream_id" not in event
        client.socket.close()


def test_a_response_that_its_lane_failed_to_continue_is_forgotten() -> None:
    with connected(scripted(CALL, HELLO)) as client:
        client.ask(input="Hi", tools=[TOOL], store=False)
        first = client.response()
        client.ask(input=[{"type": "nonsense"}], store=False, previous_response_id=first["id"])
        assert client.error()["error"]["param"] == "input[0].type"
        client.ask(input="Hi", store=False, previous_response_id=first["id"])
        assert client.error()["error"]["code"] == "previous_response_not_found"


def test_a_failure_in_another_lane_forgets_nothing_of_this_one() -> None:
    with connected(scripted(HELLO, AGAIN)) as client:
        client.ask(input="Hi", store=False)
        first = client.response()
        client.ask(input=[{"type": "nonsense"}], previous_response_id=first["id"], stream_id="fork")
        assert client.error()["stream_id"] == "fork"
        client.ask(input="Hi", store=False, previous_response_id=first["id"])
        assert text_of(client.response()) == "Hello again!"


def test_a_lane_forks_from_another() -> None:
    with connected(scripted(HELLO, AGAIN)) as client:
        client.ask(input="Hi", store=False, stream_id="main")
        events = [client.event()]
        while events[-1]["type"] != "response.completed":
            events.append(client.event())
        first = events[-1]["response"]["id"]
        client.ask(input="And?", store=False, stream_id="fork", previous_response_id=first)
        event = client.event()
        assert (event["type"], event["stream_id"]) == ("response.created", "fork")
        client.socket.close()


def test_an_engine_failure_ends_the_response_and_not_the_connection() -> None:
    with connected(ReplayEngine([200005, 17196, 200008, 13225], fails_after=3)) as client:
        client.ask(input="Hi", store=False)
        failed = client.response()
        assert failed["status"] == "failed"
        assert failed["error"]["code"] == "server_error"
        client.ask(input="And?", store=False, previous_response_id=failed["id"])
        assert client.response()["status"] == "failed"


WRONG_FRAMES = [
    ("{", "invalid_json", None),
    ("[]", "invalid_json", None),
    ("{}", "invalid_value", "type"),
    ('{"type": "response.make"}', "invalid_value", "type"),
    ('{"type": "response.create"}', "invalid_value", "input"),
    ('{"type": "response.create", "input": "x", "stream_id": "a b"}', "invalid_value", "stream_id"),
    ('{"type": "response.create", "input": "x", "stream_id": ""}', "invalid_value", "stream_id"),
    ('{"type": "response.create", "input": "x", "stream_id": 7}', "invalid_value", "stream_id"),
    ('{"type": "response.create", "input": "x", "background": true}', "unsupported_parameter", "background"),
    ('{"type": "response.create", "input": "x", "generate": "no"}', "invalid_value", "generate"),
    ('{"type": "response.create", "input": "x", "model": "other"}', "model_not_found", "model"),
]


def test_wrong_frames_get_errors_and_the_connection_stays_open() -> None:
    with connected(scripted(HELLO)) as client:
        for frame, code, param in WRONG_FRAMES:
            client.socket.send(frame)
            error = client.error()
            assert (error["status"], error["error"]["code"], error["error"]["param"]) == (400, code, param)
        client.socket.send(b'{"type": "response.create", "input": "as bytes", "stream": false}')
        assert client.response()["status"] == "completed"


def test_an_error_names_its_lane() -> None:
    with connected(scripted(HELLO)) as client:
        client.ask(stream_id="agent_1", input=7)
        assert client.error()["stream_id"] == "agent_1"


def test_steering_is_refused_and_returns_the_input() -> None:
    with connected(scripted(HELLO)) as client:
        steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop!"}
        client.socket.send(json.dumps(steer))
        event = client.event()
    assert event["type"] == "response.steer.failed"
    assert event["error"]["code"] == "steering_not_supported"
    assert event["steer"] == {"previous_response_id": "resp_1", "input": "Stop!"}


def test_too_many_concurrent_lanes_are_refused() -> None:
    with connected(scripted(SLOW, tokens_per_second=20)) as client:
        for number in range(MAX_LANES + 1):
            client.ask(input="Hi", stream_id=f"lane_{number}")
        while (event := client.event())["type"] != "error":
            pass
        assert event["error"]["code"] == "websocket_stream_limit_reached"
        assert event["stream_id"] == f"lane_{MAX_LANES}"


def test_a_client_that_disconnects_stops_all_its_runs() -> None:
    engine = scripted(SLOW, tokens_per_second=20)
    with serving(engine) as url:
        with connect(f"ws{url.removeprefix('http')}/responses") as socket:
            client = Client(socket)
            for lane in ("a", "b", "c"):
                client.ask(input="Hi", stream_id=lane)
            while client.event()["type"] != "response.output_text.delta":
                pass
            assert engine.active > 0
        deadline = time.monotonic() + 10
        while engine.active:
            assert time.monotonic() < deadline, "a generation outlives its client"
            time.sleep(0.01)


def test_a_running_response_finishes_when_the_server_stops() -> None:
    server = serving(scripted(SLOW, tokens_per_second=400))
    url = server.__enter__()
    with connect(f"ws{url.removeprefix('http')}/responses") as socket:
        client = Client(socket)
        client.ask(input="Hi")
        events = [client.event()]
        while events[-1]["type"] != "response.output_text.delta":
            events.append(client.event())
        stopping = threading.Thread(target=server.__exit__, args=(None, None, None))
        stopping.start()
        while events[-1]["type"] != "response.completed":
            events.append(client.event())
        check_stream(events)
        with pytest.raises(ConnectionClosed) as closed:
            client.event()
    stopping.join()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012


def test_a_disabled_websocket_is_an_immediate_426() -> None:
    with serving(scripted(HELLO), Settings(websocket=False)) as url:
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws{url.removeprefix('http')}/responses")
        assert refused.value.response.status_code == 426
        assert json.loads(refused.value.response.body)["error"]["code"] == "upgrade_required"
        assert httpx.get(f"{url}/responses").status_code == 405


def test_a_plain_get_is_a_426_that_names_websocket() -> None:
    with serving(scripted(HELLO)) as url:
        answer = httpx.get(f"{url}/responses")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert answer.json()["error"]["code"] == "upgrade_required"


def test_a_web_page_of_another_site_may_not_connect() -> None:
    with serving(scripted(HELLO)) as url:
        address = f"ws{url.removeprefix('http')}/responses"
        with pytest.raises(InvalidStatus) as refused:
            connect(address, origin="https://elsewhere.example")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        own = url.removesuffix("/v1")
        with connect(address, origin=own) as socket:  # type: ignore[arg-type]
            client = Client(socket)
            client.ask(input="Hi")
            assert client.response()["status"] == "completed"


@pytest.mark.parametrize("name", ["realtime", "responses"])
def test_a_page_that_sends_its_key_as_a_sub_protocol_is_served_over_the_other_one(name: str) -> None:
    with (
        serving(scripted(HELLO)) as url,
        connect(
            f"ws{url.removeprefix('http')}/responses", subprotocols=[name, "openai-insecure-api-key.sesame"]
        ) as socket,
    ):
        assert socket.subprotocol == name
        client = Client(socket)
        client.ask(input="Hi")
        assert client.response()["status"] == "completed"


def test_the_oldest_response_is_forgotten_when_a_connection_has_too_many() -> None:
    with connected(scripted(AGAIN)) as client:
        ids = []
        for _ in range(MAX_RESPONSES + 1):
            client.ask(input="Hi", store=False, generate=False)
            ids.append(client.response()["id"])
        client.ask(input="Hi", previous_response_id=ids[0])
        assert client.error()["error"]["code"] == "previous_response_not_found"
        client.ask(input="Hi", previous_response_id=ids[-1])
        assert text_of(client.response()) == "Hello again!"
