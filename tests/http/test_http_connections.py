"""Unusual requests of clients and proxies: odd paths, old HTTP, other protocols, and labels."""

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.cli.server import http_server
from gpt_oss_server.cli.server.start import Start
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.edge import make_caller
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import error_of
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import HELLO, scripted, serving

BODY = b'{"input": "hi"}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO, loop=True)) as base:
        yield base


def send(url: str, data: bytes) -> tuple[str, dict[str, str], bytes]:
    """Sends bytes and returns status line, headers and body, read until the server closes the connection."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.lower().split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the start of a TLS handshake
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"FROB /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: some\r\n\r\n",
        "GET /v1/modèles HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    ],
    ids=["tls", "http 2", "method", "length", "path"],
)
def test_bytes_that_are_no_request_get_an_error_body(url: str, data: bytes) -> None:
    status, headers, body = send(url, data)
    assert status == "HTTP/1.1 400 Bad Request"
    assert (headers["content-type"], headers["connection"]) == ("application/json", "close")
    assert headers["x-request-id"].startswith("req_")
    error = error_of(body)
    assert error["code"] == "invalid_http"
    assert "http://" in error["message"]


def test_bytes_that_are_no_request_keep_earlier_answers(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """For example a client that counts characters instead of bytes. Nothing is logged as an error."""
    head = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
    _, _, body = send(url, (head.encode() + BODY) * 3 + b'"}')
    assert body.count(b'"object":"response"') == 3
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_stream_for_http_1_0_has_no_chunks(url: str) -> None:
    body = b'{"input": "hi", "stream": true}'
    head = f"POST /v1/responses HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    _, headers, answer = send(url, head.encode() + body)
    assert "transfer-encoding" not in headers
    blocks = answer.decode().removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("event: response.") for block in blocks)
    assert blocks[-1].startswith("event: response.completed")


def test_a_post_that_offers_a_websocket_is_answered(url: str) -> None:
    head = (
        "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\n"
        f"Upgrade: websocket\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    status, _, body = send(url, head.encode() + BODY)
    assert (status, json.loads(body)["status"]) == ("HTTP/1.1 200 OK", "completed")


@pytest.mark.parametrize(
    "path", ["/metrics/", "//metrics", "/%6Detrics", "/metrics%2F", "/./metrics", "/METRICS"]
)
def test_a_path_that_a_proxy_may_deny_has_one_spelling(url: str, path: str) -> None:
    root = url.removesuffix("/v1")
    assert httpx.get(f"{root}/metrics").status_code == 200
    status, _, _ = send(url, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert status == "HTTP/1.1 404 Not Found"


@pytest.mark.parametrize("path", ["/responses/", "/responses//"])
def test_a_slash_at_the_end_of_a_path_is_ignored(url: str, path: str) -> None:
    """With a TLS proxy in front, a redirect would lead to http, and many clients follow no redirect."""
    assert httpx.post(url + path, content=BODY).json()["status"] == "completed"
    assert httpx.get(f"{url}/models/").json()["object"] == "list"
    with connect(url.replace("http:", "ws:") + path) as connection:
        connection.send('{"type": "response.create", "input": "hi"}')
        assert json.loads(connection.recv())["type"] == "response.created"


@pytest.mark.parametrize(
    ("path", "intended"),
    [
        ("/responses", "/v1/responses"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/responses", "/v1/responses"),
        ("//v1/responses", "/v1/responses"),
        ("/api/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/embeddings", "/openapi.json"),
    ],
)
def test_an_unknown_path_names_the_intended_one(url: str, path: str, intended: str) -> None:
    answer = httpx.post(url.removesuffix("/v1") + path, content=BODY)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")
    assert f" {intended}" in error_of(answer)["message"].partition(";")[2]


def test_an_unsupported_method_names_the_supported_ones(url: str) -> None:
    for method, path, allowed in (
        ("PUT", "/responses", "GET, POST"),
        ("OPTIONS", "/chat/completions", "GET, POST"),
        ("PATCH", "/responses/resp_1", "GET, DELETE"),
        ("POST", "/models", "GET, HEAD"),
    ):
        answer = httpx.request(method, url + path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert allowed.replace(", ", " and ") in error_of(answer)["message"]


def test_a_websocket_at_another_path_is_a_404(url: str) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(url.replace("http:", "ws:") + "/realtime"):
        pass
    answer = refused.value.response
    assert answer.status_code == 404
    assert "/v1/responses" in error_of(bytes(answer.body))["message"]
    assert answer.headers["x-request-id"]


def test_a_websockets_handshake_has_the_request_id(url: str) -> None:
    sent = {"x-request-id": "mine"}
    with connect(url.replace("http:", "ws:") + "/responses", additional_headers=sent) as connection:
        assert connection.response is not None
        assert connection.response.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("path", ["/responses", "/chat/completions", "/completions", "/conversations"])
@pytest.mark.parametrize("body", [b"[]", b"null", b'"hi"'])
def test_a_body_that_is_no_object_is_invalid_json(url: str, path: str, body: bytes) -> None:
    answer = httpx.post(url + path, content=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json")


def test_connections_stay_open_for_longer_than_proxies_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[Any] = []
    monkeypatch.setattr(http_server.Server, "run", lambda self, sockets: configs.append(self.config))
    with socket.socket() as listener:
        http_server.serve_until_stopped(Start(Settings()), listener, Settings())
    assert configs[0].timeout_keep_alive > 60


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_requests_labels_reach_the_engine(encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special("<|channel|>final<|message|>Hi<|return|>"))
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    sent = {"x-request-id": "mine", "x-session-id": "s1", "traceparent": TRACE, "cookie": "secret"}
    with serving(engine, Settings()) as base:
        for path, body in (("responses", {"input": "hi"}), ("chat/completions", chat)):
            httpx.post(f"{base}/{path}", json=body, headers=sent).raise_for_status()
            answered = httpx.post(f"{base}/{path}", json={**body, "prompt_cache_key": "k"})
            last = engine.samplings[-1].labels
            assert last["x-request-id"] == answered.headers["x-request-id"]
            if path == "responses":
                assert last["x-session-id"] == "k"
            assert engine.samplings[-2].labels == {name: sent[name] for name in sent if name != "cookie"}


@pytest.mark.parametrize("value", ["", " a", "a\u00e9", "x" * 600, "a\tb"])
def test_values_that_could_break_a_request_are_left_out(value: str) -> None:
    scope = {"headers": [(b"x-session-id", value.encode("utf-8")), (b"traceparent", b"ok")]}
    assert make_caller(scope, "x-request-id", "1").labels == {"x-request-id": "1", "traceparent": "ok"}
    assert Caller().labels_with(value) == {}


@pytest.mark.parametrize(
    ("labels", "session", "expected"), [({}, None, None), ({}, "k", "k"), ({"x-session-id": "s"}, "k", "s")]
)
def test_a_clients_session_is_first(
    labels: Mapping[str, str], session: str | None, expected: str | None
) -> None:
    assert Caller(labels=labels).labels_with(session).get("x-session-id") == expected
