"""What clients and proxies send that is not quite what they mean: odd paths, old HTTP, other protocols."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server import http_server
from gpt_oss_server.settings import Settings
from tests.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
BODY = b'{"input": "hi"}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO, loop=True), Settings(allow_origin=("https://chat.example",))) as base:
        yield base


def send(url: str, data: bytes) -> tuple[str, dict[str, str], bytes]:
    """The status line, the headers and the body of what comes until the server closes the connection."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.lower().split(": ", 1) for line in lines), body


def error_of(answer: httpx.Response | bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer if isinstance(answer, bytes) else answer.content)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_chrome_is_told_that_an_allowed_site_may_reach_a_private_network(url: str) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
        "Access-Control-Request-Private-Network": "true",
    }
    answer = httpx.options(f"{url}/responses", headers={**asked, "Origin": "https://chat.example"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-private-network"] == "true"
    other = httpx.options(f"{url}/responses", headers={**asked, "Origin": "https://evil.example"})
    assert (other.status_code, other.headers.get("access-control-allow-private-network")) == (403, None)


@pytest.mark.parametrize("path", ["/responses", "/chat/completions", "/completions", "/conversations"])
@pytest.mark.parametrize("body", [b"[]", b"null", b'"hi"'])
def test_a_body_that_is_no_object_is_invalid_json(url: str, path: str, body: bytes) -> None:
    answer = httpx.post(url + path, content=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "invalid_json")


def test_json_with_a_raw_line_break_is_told_in_plain_words(url: str) -> None:
    answer = httpx.post(f"{url}/responses", content=b'{"input": "a\nb"}')
    assert error_of(answer)["message"].endswith("Invalid control character at line 1, column 13.")
