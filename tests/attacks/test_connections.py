"""Connections that cost much: large heads, requests that never end, floods, clients that leave abruptly."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.doubles.attacked import Attacked, attacked, under_probe

POST = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
SECONDS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Attacked]:
    with attacked("--request-timeout", str(SECONDS), "--max-connections", "400") as server:
        yield server


def test_sixty_megabytes_of_headers(server: Attacked) -> None:
    with under_probe(server, "60 MB of one header"), server.connect() as connection:
        with suppress(OSError):
            connection.sendall(POST + b"X-Large: ")
            for _ in range(60):
                connection.sendall(b"a" * 2**20)
        with suppress(OSError):
            assert connection.recv(100).startswith(b"HTTP/1.1 431")
    with under_probe(server, "60 MB of many headers"), server.connect() as connection, suppress(OSError):
        connection.sendall(POST)
        for _ in range(60):
            connection.sendall(b"X-A: b\r\n" * 2**17)


def test_six_hundred_half_sent_requests(server: Attacked) -> None:
    with under_probe(server, "600 half-sent requests"), ExitStack() as stack:
        halves = []
        for number in range(600):
            half = stack.enter_context(server.connect())
            sent = POST if number % 2 else POST + b"Content-Length: 100\r\n\r\n{"
            with suppress(OSError):
                half.sendall(sent)
            halves.append(half)
        body = {"input": "Hi", "max_output_tokens": 4}
        answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60)
        assert answer.status_code == 200
        time.sleep(SECONDS + 4)
        for half in halves:
            half.settimeout(20)
            with suppress(ConnectionResetError):
                while half.recv(4_096):  # its end, or the test runs into the time-out
                    pass


def test_clients_that_reset_their_connections(server: Attacked) -> None:
    body = b'{"input": "Tell me a story", "stream": true, "max_output_tokens": 200}'
    with under_probe(server, "60 clients that reset their connections"):
        for number in range(60):
            with server.connect() as connection:
                head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
                connection.sendall((head + body)[: -9 if number % 3 == 0 else None])
                if number % 3 == 1:
                    connection.recv(200)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(1)
    assert server.errors() == ""
