"""Bodies of many or odd values, bounded before they are parsed; uploads; and streams that end well or not."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI
from starlette.requests import Request

from gpt_oss_server.errors import BodyTooLarge, InvalidRequest
from gpt_oss_server.http.body import decode_json
from gpt_oss_server.http.sse import to_line
from gpt_oss_server.http.uploads import read_upload
from gpt_oss_server.json_values import MAX_VALUES, has_too_many_values, is_larger, without_lone_surrogates
from gpt_oss_server.settings import Settings
from inference.engine import Sampling, Step
from tests.doubles.apis.api_client import APIS, upload_request
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.serving import HELLO, scripted, serving

HOSTILE = st.text(st.sampled_from('",:[]{}\\\\ ab'), max_size=40)


@pytest.mark.parametrize("value", ["{}", "[]", "1", '"a"', '{"a":1}', "1.5"])
def test_too_many_values_are_refused(value: str) -> None:
    with pytest.raises(BodyTooLarge, match="500,000 values"):
        decode_json(b"[" + b",".join([value.encode()] * (MAX_VALUES + 2)) + b"]")


@settings(max_examples=20)
@given(st.recursive(HOSTILE, lambda inner: st.lists(inner) | st.dictionaries(HOSTILE, inner)))
def test_only_separators_outside_of_strings_count(value: Any) -> None:
    commas = ("," * MAX_VALUES) + '"\\'
    body = json.dumps([value, commas]).encode()
    assert not has_too_many_values(body)
    assert decode_json(body) == [value, commas]
    assert has_too_many_values(json.dumps([value, *[1] * MAX_VALUES]).encode() + b" " + b",")


def test_a_long_text_of_commas_is_served() -> None:
    text = 'a,b:c[d]{e}\\"' * 200_000
    assert decode_json(json.dumps({"input": text}).encode()) == {"input": text}


@given(st.text(st.characters(), max_size=30), st.integers(0, 3))
def test_lone_surrogates_are_replaced_wherever_the_text_is_cut(text: str, more: int) -> None:
    value = {"a": text + "\ud800" * more + "🧠", "\udfff": [text]}
    cleaned = without_lone_surrogates(value)
    halves = [each.encode("utf-16", "surrogatepass") for each in (text, "\udfff")]
    expected = [half.decode("utf-16", "replace") for half in halves]
    assert cleaned == {"a": expected[0] + "\ufffd" * more + "🧠", expected[1]: [expected[0]]}


FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("/responses", {"input": ["x"] * 60_000}),
    ("/responses", {"input": "x", "tools": [1] * 60_000}),
    ("/responses", {"input": "x", "include": [[]] * 60_000}),
    ("/responses", {"input": "x", "text": {"format": {"schema": {"enum": [{}] * 60_000}}}}),
    ("/responses", {"input": "x", "unknown": {str(n): n for n in range(60_000)}}),
    ("/chat/completions", {"messages": [{}] * 60_000}),
    ("/conversations", {"items": ["x"] * 60_000}),
]


@pytest.mark.parametrize(("path", "body"), FIELDS, ids=range(len(FIELDS)))
def test_a_field_has_a_bound_of_its_own(path: str, body: dict[str, Any]) -> None:
    with serving(scripted(HELLO)) as url:
        answer = httpx.post(url + path, json=body, timeout=60)
    assert answer.status_code == 400
    assert "at most. Send fewer." in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == list(body)[-1]


LONG = "x" * 3_000_000
ECHOING: list[tuple[str, dict[str, Any]]] = [
    ("/responses", {"input": "x", "model": LONG}),
    ("/responses", {"input": "x", "tools": [{"type": "function", "name": LONG}]}),
    ("/responses", {"input": "x", "metadata": {LONG: 5}}),
    ("/responses", {"input": "x", "previous_response_id": LONG}),
    ("/chat/completions", {"messages": [{"role": LONG, "content": "x"}]}),
    ("/completions", {"prompt": [[LONG]]}),
    ("/conversations", {"items": [{"type": LONG}]}),
]


@pytest.mark.parametrize(("path", "body"), ECHOING, ids=range(len(ECHOING)))
def test_an_error_echoes_little(path: str, body: dict[str, Any]) -> None:
    with serving(scripted(HELLO)) as url:
        answer = httpx.post(url + path, json=body, timeout=60)
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 3_000
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_long_message_keeps_its_advice() -> None:
    error = InvalidRequest(f"No {LONG!r}. Send a shorter one.", param=LONG)
    assert error.message.startswith("No 'xxx")
    assert error.message.endswith("xx'. Send a shorter one.")
    assert len(str(error)) == len(error.message) < 1_600
    assert len(error.param or "") == 200


def test_a_body_whose_length_is_too_large_is_not_even_read() -> None:
    with serving(scripted(HELLO)) as url:
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            head = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2**40}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 999), st.text("abc ", max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text("ab", max_size=9), inner)),
    max_leaves=30,
)


@given(values, st.integers(0, 400))
def test_it_is_about_the_length_of_the_json(value: Any, limit: int) -> None:
    length = len(json.dumps(value))
    if length > 2 * limit + 8:
        assert is_larger(limit, value)
    if 3 * length + 8 <= limit:
        assert not is_larger(limit, value)


@pytest.mark.parametrize(
    "large",
    [
        "x" * 30_000_000,
        [{"role": "user", "content": "word " * 100}] * 50_000,
        [""] * 5_000_000,
        {"a": [list(range(2_000_000))]},
    ],
    ids=["one text", "messages", "empty texts", "numbers"],
)
def test_a_large_value_is_not_read_to_its_end(large: Any) -> None:
    start = time.thread_time()
    assert is_larger(10_000, "small", large)
    assert time.thread_time() - start < 0.02


FINAL = [200005, 17196, 200008, 13225, 0, 200002]  # a channel, a text, the end


class SlowToStart(ReplayEngine):
    def __init__(self, seconds: float) -> None:
        super().__init__(FINAL)
        self._seconds = seconds

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        await asyncio.sleep(self._seconds)
        async for step in super().generate(tokens, sampling):
            yield step


def test_a_long_prefill_is_kept_alive_by_events_that_clients_count() -> None:
    with (
        serving(SlowToStart(1.5), Settings(keep_alive=0.2)) as url,
        OpenAI(base_url=url, api_key="any") as client,
    ):
        raw = client.responses.create(model="replay", input="Hi", stream=True)
        events = [event.to_dict() for event in raw]
        check_stream(events)
        with client.responses.stream(model="replay", input="Hi") as stream:
            assert stream.until_done().get_final_response().status == "completed"
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert 2 <= kinds[2:].count("response.in_progress") <= 8
    assert kinds[-1] == "response.completed"


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
def test_chunks_are_kept_alive_by_comments_that_clients_ignore(path: str) -> None:
    with serving(SlowToStart(1.5), Settings(keep_alive=0.2)) as url:
        lines = httpx.post(url + path, json={**APIS[path], "stream": True}).text.splitlines()
    assert 2 <= sum(line.startswith(":") for line in lines) <= 8
    assert lines[-2] == "data: [DONE]"
    assert all(line.startswith(("data: ", ": ")) or not line for line in lines)


def test_heartbeats_can_be_disabled() -> None:
    with serving(SlowToStart(0.3), Settings(keep_alive=None)) as url:
        lines = httpx.post(f"{url}/responses", json={"input": "Hi", "stream": True}).text.splitlines()
    assert sum(line == "event: response.in_progress" for line in lines) == 1
    assert not any(line.startswith(":") for line in lines)


TEXT = "one\u2028two\u2029three\u0085four \N{EARTH GLOBE EUROPE-AFRICA} Å"
ANSWER = f"<|channel|>final<|message|>{TEXT}<|return|>"


@pytest.mark.parametrize("text", [TEXT, "\u2027\u202a\u0084\u0086", "\x0b\x0c\x1c\x1d\x1e\r\n", "é \u2028"])
def test_a_value_is_one_line_and_the_same_value(text: str) -> None:
    line = to_line({"text": text, text: 1}).decode()
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text, text: 1}


@pytest.mark.parametrize("path", APIS)
def test_an_event_is_one_line_for_every_client(path: str) -> None:
    body = {**APIS[path], "stream": True} | ({"max_tokens": 40} if path == "/completions" else {})
    with serving(scripted(ANSWER)) as url, httpx.stream("POST", url + path, json=body) as response:
        lines = list(response.iter_lines())  # splits at every line end of Unicode
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [json.loads(line) for line in data if line != "[DONE]"]
    assert TEXT in _shown(events)
    assert all(line.startswith(("data: ", "event: ", ": ")) for line in lines if line)


def _shown(events: list[dict[str, Any]]) -> str:
    choices = [choice for event in events for choice in event.get("choices", ())]
    texts = [event["delta"] for event in events if event.get("type") == "response.output_text.delta"]
    texts += [choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices]
    return "".join(texts)


BODY = b'{"file_id": "file-1"}'


def request(body: bytes = BODY, **headers: str) -> Request:
    return upload_request(body, **{"content_type": "application/json", **headers})


async def test_an_upload_is_read_and_one_that_is_too_large_says_what_to_send() -> None:
    assert await read_upload(request(content_encoding="identity"), 1_000) == "file-1"
    with pytest.raises(BodyTooLarge, match=r"larger than 10 bytes\. Send a smaller file\."):
        await read_upload(request(), 10)


FORM = "multipart/form-data; boundary=x"


def form(disposition: bytes, content: bytes = b"a,b", before: bytes = b"") -> bytes:
    head = b"Content-Disposition: " + disposition + b"\r\n\r\n"
    return before + b"--x\r\n" + head + content + b"\r\n--x--\r\n"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b'form-data; name="file"; filename="data.csv"', "data.csv"),
        (b"form-data;name=file;filename=data.csv", "data.csv"),
        ('form-data; name="file"; filename="tides ä; 1.csv"'.encode(), "tides ä; 1.csv"),
        (b'form-data; name="file"; filename="a\\"b\\\\c"', 'a"b\\c'),
        (b"form-data; name=file; filename=x; filename*=UTF-8''tides%20%C3%A4.csv", "tides ä.csv"),
        (b"form-data; name=file; filename*=no-such-set'de'a%20b", "a b"),
    ],
)
async def test_the_name_of_a_file_in_a_form(disposition: bytes, name: str) -> None:
    field = form(b"form-data; name=purpose", b"assistants").removesuffix(b"--x--\r\n")
    sent = request(form(disposition, before=field), content_type=FORM)
    assert await read_upload(sent, 10_000) == (name, b"a,b")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (form(b'form-data; name="file"' + b";" * 9_000), "more than 8,192 bytes of headers"),
        (b"--x\r\n\r\n\r\n" * 200, "more than 100 parts"),
        (form(b"form-data; name=other; filename=a"), "no field `file`"),
    ],
    ids=["a long head", "many parts", "no file"],
)
async def test_a_form_without_a_file_is_explained(body: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        await read_upload(request(body, content_type=FORM), 1_000_000)


@pytest.mark.parametrize("header", [b"Content-Transfer-Encoding: base64", b"content-encoding: gzip"])
async def test_a_file_in_an_encoding_is_refused(header: bytes) -> None:
    body = form(b"form-data; name=file; filename=a\r\n" + header)
    with pytest.raises(InvalidRequest, match="is not decoded") as refused:
        await read_upload(request(body, content_type=FORM), 1_000)
    assert header.partition(b":")[0].decode().lower() in refused.value.message
    assert refused.value.param == "file"


@pytest.mark.parametrize("kind", ["application/json", FORM])
async def test_a_compressed_upload_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="content-encoding 'gzip'"):
        await read_upload(request(gzip.compress(BODY), content_type=kind, content_encoding="gzip"), 1_000)
