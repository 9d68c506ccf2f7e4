"""Requests that cost much: large bodies and heads, very many choices, floods, clients that leave abruptly."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import httpx
import pytest

from tests.doubles.attacked import Attacked, attacked, under_probe

LIMIT = 16 * 1024**2
SEPARATORS = 480_000  # a few less than are taken


@pytest.fixture(scope="module")
def flooded() -> Iterator[Attacked]:
    with attacked() as flooded:
        yield flooded


def array(item: bytes, size: int, most: int = SEPARATORS) -> bytes:
    count = min(size // (len(item) + 1), most // (1 + item.count(b"{") + item.count(b"[") + item.count(b":")))
    return b"[" + b",".join([item] * count) + b"]"


VALUES: dict[str, Callable[[], bytes]] = {
    "objects": lambda: array(b"{}", LIMIT - 1000),
    "pairs": lambda: array(b'{"a":1}', LIMIT - 1000),
    "numbers": lambda: array(b"1", LIMIT - 1000),
    "strings": lambda: array(b'"a"', LIMIT - 1000),
    "keys": lambda: b"{" + b",".join(b'"%d":1' % n for n in range(SEPARATORS // 2)) + b"}",
    "lone surrogates": lambda: b'"' + b"\\ud800" * (LIMIT // 6 - 200) + b'"',
    "text": lambda: b'"' + b"word, " * (LIMIT // 6 - 200) + b'"',
    "one letter": lambda: b'"' + b"a" * (LIMIT - 1000) + b'"',
    "emoji": lambda: b'"' + "🧠".encode() * (LIMIT // 4 - 500) + b'"',
    "messages": lambda: array(b'{"role":"user","content":"x"}', LIMIT - 1000),
    "too many objects": lambda: array(b"{}", LIMIT - 1000, LIMIT),
    "too large": lambda: b'"' + b"a" * (57 * 1024**2) + b'"',
}


@cache
def value(name: str) -> bytes:
    return VALUES[name]()


BODIES = {
    "/v1/responses": b'{"input": %s, "max_output_tokens": 1}',
    "/v1/chat/completions": b'{"messages": %s, "max_tokens": 1}',
    "/v1/completions": b'{"prompt": %s, "max_tokens": 1}',
    "/tokenize": b'{"prompt": %s}',
    "/detokenize": b'{"tokens": %s}',
    "/v1/conversations": b'{"items": %s}',
    "/v1/containers": b'{"name": %s}',
    "/v1/responses/input_tokens": b'{"input": %s}',
}
IN_FIELDS = {
    **{name: f'"{name}": %s'.encode() for name in ("instructions", "tools", "metadata", "unknown")},
    **{name: f'"{name}": %s'.encode() for name in ("include", "logit_bias")},
    "text": b'"text": {"format": {"type": "json_schema", "name": "x", "schema": {"enum": %s}}}',
    "allowed tools": b'"tool_choice": {"type": "allowed_tools", "tools": %s}',
}


@pytest.mark.parametrize("path", BODIES)
def test_a_large_body(flooded: Attacked, path: str) -> None:
    for name in VALUES:
        post(flooded, path, name, BODIES[path])


@pytest.mark.parametrize("field", IN_FIELDS)
def test_a_large_field(flooded: Attacked, field: str) -> None:
    for name in VALUES:
        body = b'{"input": "x", "max_output_tokens": 1, ' + IN_FIELDS[field] + b"}"
        post(flooded, "/v1/responses", name, body, field)


def post(flooded: Attacked, path: str, name: str, body: bytes, field: str = "") -> None:
    with under_probe(flooded, f"{path} {field} with {name}"):
        answer = httpx.post(f"{flooded.url}{path}", content=body % value(name), timeout=120)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert len(answer.content) < 4_000, "an error echoes little"


def test_several_together(flooded: Attacked) -> None:
    names = ("objects", "lone surrogates", "text", "keys")
    bodies = [BODIES["/v1/responses"] % value(name) for name in names]
    with under_probe(flooded, "eight large bodies together"), ThreadPoolExecutor(8) as clients:
        url = f"{flooded.url}/v1/responses"
        sent = [clients.submit(httpx.post, url, content=body, timeout=300) for body in bodies * 2]
        assert {answer.result().status_code for answer in sent} <= {200, 400}


@pytest.fixture(scope="module")
def crowded() -> Iterator[Attacked]:
    with attacked("--kv-memory", "512MiB") as crowded:
        yield crowded


def complete(crowded: Attacked, *, wait: float = 120, **body: Any) -> int:
    """The status; 0 if this client left before."""
    try:
        return httpx.post(f"{crowded.url}/v1/completions", json=body, timeout=wait).status_code
    except httpx.ReadTimeout:
        return 0


def active(crowded: Attacked) -> float:
    engine = httpx.get(f"{crowded.url}/health", timeout=60).json()["counters"]["engine"]
    return float(engine["running"] + engine["waiting"])


def test_millions_of_choices(crowded: Attacked) -> None:
    with under_probe(crowded, "20,000 prompts × n 128"):
        assert complete(crowded, prompt=["a"] * 20_000, n=128) == 400
    with under_probe(crowded, "2,048 choices, whose client leaves"):
        assert complete(crowded, wait=3, prompt=["a"] * 16, n=128, max_tokens=200) in (0, 200)
    deadline = time.monotonic() + 60
    while active(crowded):
        assert time.monotonic() < deadline, "choices go on without their client"
        time.sleep(0.2)


POST = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
SECONDS = 3


@pytest.fixture(scope="module")
def impatient() -> Iterator[Attacked]:
    with attacked("--request-timeout", str(SECONDS), "--max-connections", "400") as impatient:
        yield impatient


def test_sixty_megabytes_of_headers(impatient: Attacked) -> None:
    with under_probe(impatient, "60 MB of one header"), impatient.connect() as connection:
        with suppress(OSError):
            connection.sendall(POST + b"X-Large: ")
            for _ in range(60):
                connection.sendall(b"a" * 2**20)
        with suppress(OSError):
            assert connection.recv(100).startswith(b"HTTP/1.1 431")
    with (
        under_probe(impatient, "60 MB of many headers"),
        impatient.connect() as connection,
        suppress(OSError),
    ):
        connection.sendall(POST)
        for _ in range(60):
            connection.sendall(b"X-A: b\r\n" * 2**17)


def test_clients_that_reset_their_connections(impatient: Attacked) -> None:
    body = b'{"input": "Tell me a story", "stream": true, "max_output_tokens": 200}'
    with under_probe(impatient, "60 clients that reset their connections"):
        for number in range(60):
            with impatient.connect() as connection:
                head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
                connection.sendall((head + body)[: -9 if number % 3 == 0 else None])
                if number % 3 == 1:
                    connection.recv(200)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(1)
    assert impatient.errors() == ""
