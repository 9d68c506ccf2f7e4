"""What a connection may cost: the size of a head, the time of a request, the number of connections."""

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from gpt_oss_server.cli.server.http_server import connection_limits
from gpt_oss_server.http.connections.limits import ConnectionLimits
from gpt_oss_server.http.connections.room import gives_way
from gpt_oss_server.http.connections.sub_protocols import GIVES_WAY
from gpt_oss_server.settings import Settings
from tests.doubles.serving import HELLO, scripted, serving

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
GET_ONCE = GET[:-2] + b"Connection: close\r\n\r\n"
BODY = b'{"input": "hi"}'
POST = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
CLOSING = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n"
UNFINISHED = {
    "nothing": b"",
    "a line break": b"\r\n",
    "half a first line": b"GET /v1/mod",
    "half a head": GET[:-2] + b"X: y\r\n",
    "half a body": POST + b"Content-Length: 100\r\n\r\n{",
    "a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
}


@contextmanager
def limited(speed: float = 0, **limits: float) -> Iterator[tuple[str, int]]:
    """The address of a server with these limits."""
    engine = scripted(HELLO, tokens_per_second=speed)
    with serving(engine, limits=ConnectionLimits(**limits)) as url:  # type: ignore[arg-type]
        yield "127.0.0.1", urlsplit(url).port or 0


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with limited(seconds=0.6, body_rate=10_000) as address:
        yield address


def answer_to(server: tuple[str, int], *pieces: bytes, pause: float = 0.0) -> bytes:
    """All bytes that the server sends until it closes the connection, or has answered."""
    with socket.create_connection(server, timeout=20) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break
            time.sleep(pause)
        received = b""
        try:
            while piece := connection.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass
        return received


@pytest.mark.parametrize(
    "head",
    [
        POST + b"X-Large: " + b"a" * 70_000,
        POST + b"X-Large: " + b"a" * 70_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"".join(b"X-%d: a\r\n" % n for n in range(9_000)),
        POST + b"X" * 70_000,
        b"GET /" + b"a" * 70_000,
        POST + b"X-Large: " + b"a" * 5_000_000,
        POST + b"Content-Type: text/plain" + b";" * 17_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=["one", "a whole request", "many", "a name", "a path", "five megabytes", "a line"],
)
def test_a_large_head_is_refused_before_it_is_whole(server: tuple[str, int], head: bytes) -> None:
    head, _, body = answer_to(server, head).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"x-request-id" in head
    assert json.loads(body)["error"]["code"] == "headers_too_large"


def test_trailers_count_as_a_head(server: tuple[str, int]) -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    assert b"431" in answer_to(server, POST + chunks + b"X-Large: " + b"a" * 900_000).partition(b"\r\n")[0]
    small = POST + b"Connection: close\r\n" + chunks + b"Host: evil.example\r\n\r\n"
    assert answer_to(server, small).startswith(b"HTTP/1.1 200"), "a trailer is no header"


def test_a_head_within_the_limit_is_served(server: tuple[str, int]) -> None:
    large = b"".join(b"X-Large-%d: %s\r\n" % (n, b"a" * 15_000) for n in range(4))
    head = GET_ONCE[:-2] + large + b"\r\n"
    assert answer_to(server, head).startswith(b"HTTP/1.1 200")
    assert answer_to(server, head[:30_000], head[30_000:], pause=0.05).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", UNFINISHED)
def test_an_unfinished_request_ends_in_time(server: tuple[str, int], sent: str) -> None:
    answer = answer_to(server, UNFINISHED[sent])
    if sent == "nothing":
        assert answer == b""
    else:
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"request_timeout" in answer


@pytest.mark.parametrize("sent", ["half a head", "half a body"])
def test_a_second_request_of_a_connection_has_a_limit_too(server: tuple[str, int], sent: str) -> None:
    answer = answer_to(server, GET, UNFINISHED[sent], pause=0.3)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408 " in answer


def test_a_byte_now_and_then_does_not_extend_the_time(server: tuple[str, int]) -> None:
    drip = [UNFINISHED["half a body"], *[b" "] * 20]
    start = time.monotonic()
    assert b"408" in answer_to(server, *drip, pause=0.1)
    assert time.monotonic() - start < 10


def test_a_steady_body_may_take_longer(server: tuple[str, int]) -> None:
    body = BODY + b" " * 19_985
    pieces = [body[at : at + 2_000] for at in range(0, len(body), 2_000)]
    assert answer_to(server, CLOSING % len(body), *pieces, pause=0.1).startswith(b"HTTP/1.1 200")


def test_a_client_that_waits_for_its_answer_is_not_late() -> None:
    with limited(speed=4, seconds=0.3) as address:
        assert answer_to(address, CLOSING % len(BODY) + BODY).startswith(b"HTTP/1.1 200")


def test_a_new_connection_takes_the_place_of_the_longest_idle_one() -> None:
    with limited(count=20) as address, ExitStack() as stack:

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection(address, timeout=20))

        kept = opened()
        kept.sendall(GET)
        answer = b""
        while not answer.endswith(b"}"):
            answer += kept.recv(4_096)
        assert answer.startswith(b"HTTP/1.1 200")
        for _ in range(60):
            opened().sendall(b"GET /v1/mod")
        assert kept.recv(1) == b"", "it was idle longest"
        last = opened()
        last.sendall(GET)
        assert last.recv(4_096).startswith(b"HTTP/1.1 200")


def test_connections_at_work_keep_their_places_and_leave_room_for_health() -> None:
    with limited(speed=3, count=3) as address, ExitStack() as stack:
        working = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(3)]
        for connection in working:
            connection.sendall(CLOSING % len(BODY) + BODY)
        time.sleep(0.3)
        refused = answer_to(address, GET)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"--max-connections" in refused
        for path in (b"/health", b"/live", b"/ready"):
            assert answer_to(address, GET_ONCE.replace(b"/v1/models", path)).startswith(b"HTTP/1.1 200")
        assert all(connection.recv(4_096).startswith(b"HTTP/1.1 200") for connection in working)


def test_a_body_that_never_ends_gives_its_place_to_a_request() -> None:
    with limited(count=4) as address, ExitStack() as stack:
        unfinished = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(4)]
        for connection in unfinished:
            connection.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        time.sleep(1.2)
        assert answer_to(address, GET_ONCE).startswith(b"HTTP/1.1 200")
        [gone] = select.select(unfinished, [], [], 20)[0]
        assert gone.recv(100).startswith(b"HTTP/1.1 503 ")


def test_a_websocket_without_work_gives_its_place_to_a_request() -> None:
    with limited(count=3) as address, ExitStack() as stack:
        url = f"ws://{address[0]}:{address[1]}/v1/responses"
        idle = [stack.enter_context(connect(url)) for _ in range(3)]
        time.sleep(1.2)
        idle[0].send('{"type": "response.create", "input": "Hi"}')
        while "response.completed" not in str(idle[0].recv(timeout=20)):
            pass
        assert answer_to(address, GET_ONCE).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConnectionClosed) as closed:
            idle[1].recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == GIVES_WAY


@dataclass
class Place:
    holder: str
    idle_since: float | None = None
    unfinished_since: float | None = None
    is_spare: bool = False


def test_whoever_holds_most_places_gives_one_up() -> None:
    newest, few = Place("newcomer"), Place("few", unfinished_since=1.0)
    many = [Place("many", unfinished_since=since) for since in (3.0, 2.0, 9.5)]
    works = [Place("works") for _ in range(9)]
    places = [newest, few, *many, *works]
    assert gives_way(places, newest, 10.0) is many[1]
    assert gives_way([*places, Place("works", idle_since=5.0)], newest, 10.0) not in (few, *many)
    assert gives_way([newest, *works, many[2]], newest, 10.0) is None, "it may still arrive"
    fresh = Place("fresh", idle_since=9.5)
    assert gives_way([*places, fresh], newest, 10.0) is many[1], "its request may be on the way"
    assert gives_way([newest, *works, fresh], newest, 10.0) is None
    spare = Place("spare", idle_since=9.4, is_spare=True)
    assert gives_way([newest, *works, spare, fresh], newest, 10.0, young=True) is fresh
    assert gives_way([newest, *works, many[2]], newest, 10.0, young=True) is many[2]


def test_the_settings_become_limits() -> None:
    limits = connection_limits(Settings(max_connections=150, request_timeout=7.0))
    assert (limits.count, limits.seconds) == (150, 7.0)


SOCKET = b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
SOCKET += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"


@pytest.mark.parametrize("request_", [GET, CLOSING % 100, SOCKET], ids=["GET", "POST", "WebSocket"])
def test_the_health_is_not_behind_a_flood_that_arrived_before(request_: bytes) -> None:
    begun: list[str] = []
    holds, free = threading.Event(), threading.Event()

    def observed(app: Any) -> Any:
        async def first(scope: Any, receive: Any, send: Any) -> None:
            begun.append(scope.get("path", ""))
            if scope.get("path") == "/hold":
                holds.set()
                free.wait(20)
            await app(scope, receive, send)

        return first

    with serving(scripted(HELLO), wrap=observed) as url, ExitStack() as stack:
        server = ("127.0.0.1", urlsplit(url).port or 0)

        def send(content: bytes) -> socket.socket:
            connection = stack.enter_context(socket.create_connection(server, timeout=20))
            connection.sendall(content)
            return connection

        send(GET.replace(b"/v1/models", b"/hold"))
        assert holds.wait(20)
        for _ in range(200):
            send(request_)
        health = send(GET.replace(b"/v1/models", b"/health"))
        free.set()
        assert health.recv(100).startswith(b"HTTP/1.1 200")
        before = begun.index("/health")
        assert before < 20, f"{before} requests began before"
