"""WebSocket mode of the Responses API: the official SDK's connection, and raw frames."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponsesServerEvent
from pydantic import TypeAdapter
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gpt_oss_server.apis.responses.socket.connection import MAX_LANES
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.memory.connection import MAX_RESPONSES
from tests.doubles.apis.keyed import ALICE, MALLORY, ask, key_file, socket_of
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving

Event = dict[str, Any]
FINAL = "<|channel|>final<|message|>"
HELLO = f"<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant{FINAL}Hello!<|return|>"
AGAIN = f"{FINAL}Hello again!<|return|>"
SLOW = f"{FINAL}{'word ' * 400}<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
_server_event: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


class Client:
    """Sends and receives the frames of one connection; checks every event against the SDK's types."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def ask(self, **body: Any) -> None:
        self.socket.send(json.dumps({"type": "response.create", "input": "Hi", **body}))

    def event(self) -> Event:
        event: Event = json.loads(self.socket.recv(timeout=20))
        _server_event.validate_python(event)
        return event

    def until(self, *kinds: str) -> list[Event]:
        """The events to the first of these types."""
        events = [self.event()]
        while events[-1]["type"] not in kinds:
            events.append(self.event())
        return events

    def response(self) -> Event:
        """The response at the end of its events, which are checked like any stream."""
        events = self.until("response.completed", "response.failed", "response.incomplete", "error")
        assert events[-1]["type"] != "error", events[-1]
        assert not any("stream_id" in event for event in events), "which only a lane has"
        return check_stream(events)

    def responds(self, **body: Any) -> Event:
        self.ask(**body)
        return self.response()

    def error(self) -> Event:
        event = self.event()
        assert event["type"] == "error", event
        assert set(event["error"]) == {"type", "code", "message", "param"}
        return event

    def refusal(self, **body: Any) -> Event:
        self.ask(**body)
        return self.error()


def address(url: str) -> str:
    return f"ws{url.removeprefix('http')}/responses"


@contextmanager
def client_of(url: str, **options: Any) -> Iterator[Client]:
    # No bound on unread frames: a client that has stopped reading waits ten seconds to close.
    with connect(address(url), max_queue=None, **options) as socket:
        yield Client(socket)


@contextmanager
def connected(engine: Any, settings: Settings | None = None) -> Iterator[Client]:
    with serving(engine, settings) as url, client_of(url) as client:
        yield client


def text_of(response: Event) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


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
            ended = 0
            while ended < 2:
                event = (await connection.recv()).to_dict()
                order.append(str(event.pop("stream_id")))
                streams[order[-1]].append(event)
                ended += event["type"] == "response.completed"
    for events in streams.values():
        check_stream(events)
    assert "ba" in "".join(order[: len(order) // 2]), "the lanes take turns"


def test_an_unstored_response_lives_as_long_as_its_connection_and_a_stored_one_longer() -> None:
    with serving(scripted(HELLO, HELLO, AGAIN)) as url:
        with client_of(url) as client:
            unstored, stored = client.responds(store=False), client.responds()
            more = {"input": "And?", "previous_response_id": unstored["id"]}
            assert text_of(client.responds(store=False, **more)) == "Hello again!"
            assert httpx.get(f"{url}/responses/{unstored['id']}").status_code == 404
        with client_of(url) as client:
            error = client.refusal(**more)
            later = client.responds(input="And?", previous_response_id=stored["id"])
        assert httpx.get(f"{url}/responses/{stored['id']}").json()["status"] == "completed"
    assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
    assert later["previous_response_id"] == stored["id"]


def test_a_warm_up_generates_nothing_and_can_be_continued() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    with connected(scripted(HELLO)) as client:
        assert client.responds(generate=False, text={"format": form})["status"] == "completed"
        warm = client.responds(input="You will be asked.", store=False, generate=False)
        assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
        assert warm["usage"]["input_tokens"] > 0
        response = client.responds(store=False, previous_response_id=warm["id"])
    assert text_of(response) == "Hello!", "the first turn of the script was not spent on the warm-up"
    assert response["usage"]["input_tokens"] > warm["usage"]["input_tokens"]


def test_the_engine_reads_the_prompt_of_a_warm_up_and_samples_nothing() -> None:
    engine = ReplayEngine([200005])
    with connected(engine) as client:
        client.responds(generate=False)
    assert [sampling.max_tokens for sampling in engine.samplings] == [0]


def test_requests_of_one_lane_are_answered_in_turn_with_its_name() -> None:
    with connected(scripted(HELLO, AGAIN, tokens_per_second=200)) as client:
        for _ in range(2):
            client.ask(stream_id="agent_1")
        streams = [client.until("response.completed") for _ in range(2)]
    assert {event.pop("stream_id") for events in streams for event in events} == {"agent_1"}
    assert [text_of(check_stream(events)) for events in streams] == ["Hello!", "Hello again!"]


def test_a_response_that_its_lane_failed_to_continue_is_forgotten() -> None:
    with connected(scripted(CALL, HELLO)) as client:
        first = client.responds(tools=[TOOL], store=False)
        more = {"store": False, "previous_response_id": first["id"]}
        error = client.refusal(input=[{"type": "nonsense"}], **more)
        assert error["error"]["param"] == "input[0].type"
        assert client.refusal(**more)["error"]["code"] == "previous_response_not_found"


def test_a_failure_in_another_lane_forgets_nothing_of_this_one() -> None:
    with connected(scripted(HELLO, AGAIN)) as client:
        more = {"store": False, "previous_response_id": client.responds(store=False)["id"]}
        error = client.refusal(input=[{"type": "nonsense"}], stream_id="fork", **more)
        assert error["stream_id"] == "fork"
        assert text_of(client.responds(**more)) == "Hello again!"


def test_a_lane_forks_from_another() -> None:
    with connected(scripted(HELLO, AGAIN)) as client:
        client.ask(store=False, stream_id="main")
        first = client.until("response.completed")[-1]["response"]["id"]
        client.ask(input="And?", store=False, stream_id="fork", previous_response_id=first)
        event = client.event()
        assert (event["type"], event["stream_id"]) == ("response.created", "fork")
        client.socket.close()


def test_an_engine_failure_ends_the_response_and_not_the_connection() -> None:
    with connected(ReplayEngine([200005, 17196, 200008, 13225], fails_after=3)) as client:
        failed = client.responds(store=False)
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        again = client.responds(input="And?", store=False, previous_response_id=failed["id"])
        assert again["status"] == "failed"


WRONG_FRAMES = [
    ("{", "invalid_json", None),
    ("[]", "invalid_json", None),
    ("{}", "invalid_value", "type"),
    ('{"type": "response.make"}', "invalid_value", "type"),
    ('{"type": "response.create"}', "invalid_value", "input"),
    *(
        (f'{{"type": "response.create", "input": "x", {field}}}', code, field.split('"')[1])
        for field, code in (
            ('"stream_id": "a b"', "invalid_value"),
            ('"stream_id": ""', "invalid_value"),
            ('"stream_id": 7', "invalid_value"),
            ('"background": true', "unsupported_parameter"),
            ('"generate": "no"', "invalid_value"),
            ('"model": "other"', "model_not_found"),
        )
    ),
]


def test_wrong_frames_get_errors_and_the_connection_stays_open() -> None:
    with connected(scripted(HELLO)) as client:
        for frame, code, param in WRONG_FRAMES:
            client.socket.send(frame)
            error = client.error()
            assert (error["status"], error["error"]["code"], error["error"]["param"]) == (400, code, param)
        assert client.refusal(stream_id="agent_1", input=7)["stream_id"] == "agent_1"
        client.socket.send(b'{"type": "response.create", "input": "as bytes", "stream": false}')
        assert client.response()["status"] == "completed"


def test_too_many_concurrent_lanes_are_refused() -> None:
    with connected(scripted(SLOW, tokens_per_second=20)) as client:
        for number in range(MAX_LANES + 1):
            client.ask(stream_id=f"lane_{number}")
        error = client.until("error")[-1]
        assert error["error"]["code"] == "websocket_stream_limit_reached"
        assert error["stream_id"] == f"lane_{MAX_LANES}"


def test_a_client_that_disconnects_stops_all_its_runs() -> None:
    engine = scripted(SLOW, tokens_per_second=20)
    with serving(engine) as url:
        with client_of(url) as client:
            for lane in ("a", "b", "c"):
                client.ask(stream_id=lane)
            client.until("response.output_text.delta")
            assert engine.active > 0
        deadline = time.monotonic() + 10
        while engine.active:
            assert time.monotonic() < deadline, "a generation outlives its client"
            time.sleep(0.01)


def test_a_running_response_finishes_when_the_server_stops() -> None:
    server = serving(scripted(SLOW, tokens_per_second=400))
    with client_of(server.__enter__()) as client:
        client.ask()
        events = client.until("response.output_text.delta")
        stopping = threading.Thread(target=server.__exit__, args=(None, None, None))
        stopping.start()
        check_stream([*events, *client.until("response.completed")])
        with pytest.raises(ConnectionClosed) as closed:
            client.event()
    stopping.join()
    assert closed.value.rcvd.code == 1012


def test_what_is_no_websocket_is_an_immediate_426() -> None:
    with serving(scripted(HELLO), Settings(websocket=False)) as url:
        with pytest.raises(InvalidStatus) as refused:
            connect(address(url))
        assert refused.value.response.status_code == 426
        assert json.loads(refused.value.response.body)["error"]["code"] == "upgrade_required"
        assert httpx.get(f"{url}/responses").status_code == 405
    with serving(scripted(HELLO)) as url:
        answer = httpx.get(f"{url}/responses")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.json()["error"]["code"] == "upgrade_required"


@pytest.mark.parametrize("name", ["realtime", "responses"])
def test_a_page_that_sends_its_key_as_a_sub_protocol_is_served_over_the_other_one(name: str) -> None:
    protocols = [name, "openai-insecure-api-key.sesame"]
    with serving(scripted(HELLO)) as url, client_of(url, subprotocols=protocols) as client:
        assert client.socket.subprotocol == name
        assert client.responds()["status"] == "completed"


def test_the_oldest_response_is_forgotten_when_a_connection_has_too_many() -> None:
    with connected(scripted(AGAIN)) as client:
        ids = [client.responds(store=False, generate=False)["id"] for _ in range(MAX_RESPONSES + 1)]
        assert client.refusal(previous_response_id=ids[0])["error"]["code"] == "previous_response_not_found"
        assert text_of(client.responds(previous_response_id=ids[-1])) == "Hello again!"


def owners(encoding: Encoding, settings: Settings) -> list[str]:
    """Of two requests by each of two clients, in turn."""
    engine = ReplayEngine(encoding.encode_special("<|channel|>final<|message|>Hi<|return|>"))
    with serving(engine, settings) as url, socket_of(url, ALICE) as one, socket_of(url, MALLORY) as other:
        for socket in (one, other) * 2:
            assert ask(socket)["type"] == "response.completed"
    return [sampling.owner for sampling in engine.samplings]


def test_without_keys_each_connection_is_an_owner(encoding: Encoding) -> None:
    found = owners(encoding, Settings(python="off"))
    assert all(found)
    assert found[:2] == found[2:]
    assert found[0] != found[1]


def test_with_keys_each_name_is_an_owner(encoding: Encoding, tmp_path: Path) -> None:
    settings = Settings(python="off", api_key_file=key_file(tmp_path))
    assert owners(encoding, settings) == ["alice", "mallory"] * 2
