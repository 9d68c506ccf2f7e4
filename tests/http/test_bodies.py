"""Bodies of many or odd values: bounded before they are parsed, errors that echo little, and uploads."""

import json
import socket
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from gpt_oss_server.errors import BodyTooLarge, InvalidRequest
from gpt_oss_server.http.body import decode_json
from gpt_oss_server.http.uploads import read_upload
from gpt_oss_server.json_values import MAX_VALUES, has_too_many_values, is_larger, without_lone_surrogates
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
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
    ("/responses", {"input": "x", "include": [LONG]}),
    ("/responses", {"input": [{"type": LONG}]}),
    ("/responses", {"input": [{"role": LONG, "content": "x"}]}),
    ("/responses", {"input": "x", "tools": [{"type": LONG}]}),
    ("/responses", {"input": "x", "tools": [{"type": "function", "name": LONG}]}),
    ("/responses", {"input": "x", "metadata": {LONG: 5}}),
    ("/responses", {"input": "x", "tool_choice": LONG}),
    ("/responses", {"input": "x", "text": {"format": {"type": LONG}}}),
    ("/responses", {"input": "x", "previous_response_id": LONG}),
    ("/chat/completions", {"messages": [{"role": LONG, "content": "x"}]}),
    ("/chat/completions", {"messages": [{"role": "user", "content": "x"}], "logit_bias": {LONG: 1}}),
    ("/chat/completions", {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": LONG}),
    ("/completions", {"prompt": [[LONG]]}),
    ("/completions", {"prompt": "x", "model": LONG}),
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
    start = time.perf_counter()
    assert is_larger(10_000, "small", large)
    assert time.perf_counter() - start < 0.02


BODY = b'{"name": "data.csv", "content_base64": "YSxi"}'


async def test_an_upload_is_read_and_one_that_is_too_large_says_what_to_send() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": BODY, "more_body": False}

    headers = [(b"content-type", b"application/json"), (b"content-encoding", b"identity")]
    request = {"type": "http", "headers": headers}
    assert await read_upload(Request(request, receive), 1_000) == ("data.csv", b"a,b")
    with pytest.raises(BodyTooLarge, match=r"larger than 10 bytes\. Send a smaller file\."):
        await read_upload(Request(request, receive), 10)
