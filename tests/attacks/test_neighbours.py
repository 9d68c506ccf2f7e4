"""Attacks by one client, or by nobody, beside another client's stream; requests that cost much."""

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

# Cases of these attacks too, and their fixtures.
from tests.deploy.test_proxies import postgres_url, setup, test_the_proxy_does_not_publish_the_figures  # noqa: F401
from tests.doubles.apis.hostile import SOCKET, filled, form
from tests.doubles.apis.keyed import ALICE, MALLORY
from tests.doubles.attacked import Attacked, attacked, under_probe, withstands
from tests.doubles.commands import final, script
from tests.doubles.ops.certificates import write_certificate
from tests.ops.logs.test_logs import test_no_level_writes_keys_and_prompts  # noqa: F401
from tests.tools.test_fair_threads import test_slow_pages_of_one_owner_do_not_hold_up_the_pages_of_others  # noqa: F401
from tests.toolset.test_toolset import test_a_tool_server_that_starts_later  # noqa: F401

RATE = 50  # tokens per second of the stream beside an attack
PLACES = 2_048
SECONDS = 5.0
HEADERS = {"Authorization": f"Bearer {MALLORY}"}
BY_MALLORY = f"Authorization: Bearer {MALLORY}\r\n".encode()
HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "keys").write_text(f"{ALICE} name=alice\n{MALLORY} name=mallory tools=none\n")
    model = script(folder, final("word " * 5_000), tokens_per_second=RATE)
    with attacked("--api-key-file", str(folder / "keys"), model=model, key=ALICE) as server:
        yield server


def ask_as_alice(server: Attacked, text: str = "Hi") -> None:
    body = {"input": text, "max_output_tokens": 2}
    headers = {"Authorization": f"Bearer {ALICE}"}
    answer = httpx.post(f"{server.api}/responses", json=body, headers=headers, timeout=60, verify=False)
    assert answer.status_code == 200, answer.text


def all_together(clients: int, act: Callable[[], object], seconds: float = SECONDS) -> None:
    """Each client acts again and again for that time."""
    until = time.monotonic() + seconds

    def repeat() -> None:
        while time.monotonic() < until:
            act()

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(repeat) for _ in range(clients)]:
            done.result()


def test_two_uploads_of_semicolons(server: Attacked) -> None:
    body = form('name="file"' + ";" * 15_000_000).encode()
    kind = {"content-type": "multipart/form-data; boundary=x"}

    def upload() -> None:
        url = f"{server.api}/containers/none/files"
        answer = httpx.post(url, content=body, headers={**HEADERS, **kind}, timeout=60)
        assert 400 <= answer.status_code < 500, answer.text

    withstands(server, "two uploads of 15 MB of semicolons", partial(all_together, 2, upload), key=ALICE)
    ask_as_alice(server, "word " * 10_000)


UNFINISHED = {
    "WebSockets of one key": SOCKET % BY_MALLORY,
    "bodies of one key": HEAD + BY_MALLORY + b"Content-Length: 100\r\n\r\n{",
    "WebSockets of nobody": SOCKET % b"",
    "bodies of nobody": HEAD + b"Content-Length: 100\r\n\r\n{",
    "silent connections": b"",
}


def connect(server: Attacked, count: int, *begun: bytes) -> None:
    """Many connections, each of which has sent one of these beginnings in turn, and sends no more."""
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(server.connect())
            with suppress(ConnectionError):
                connection.sendall(begun[number % len(begun)])
        ask_as_alice(server)
        time.sleep(SECONDS)
        ask_as_alice(server)


@pytest.mark.parametrize("kind", UNFINISHED)
def test_connections_that_do_nothing(server: Attacked, kind: str) -> None:
    act = partial(connect, server, PLACES, UNFINISHED[kind])
    withstands(server, f"{PLACES:,} {kind}", act, key=ALICE)


def test_handshakes_that_never_finish(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    model = script(tmp_path, final("word " * 5_000), tokens_per_second=RATE)
    with attacked("--tls-cert", certificate, "--tls-key", key, model=model) as server:
        act = partial(connect, server, 2 * PLACES, b"", b"\x16\x03\x01\x02\x00")
        withstands(server, f"{2 * PLACES:,} TLS handshakes that never finish", act)


@pytest.mark.parametrize("length", [60_000, 15_000])
def test_content_types_of_semicolons(server: Attacked, length: int) -> None:
    kinds = (f"Content-Type: multipart/form-data{filled(unit, length)}\r\n" for unit in (";", ';a="\\'))
    head = (HEAD + BY_MALLORY).replace(b"responses", b"containers/none/files") + b"Content-Length: 2\r\n"
    requests = [head + kind.encode() + b"\r\n{}" for kind in kinds]

    def ask() -> None:
        for request in requests:
            with server.connect() as connection, suppress(ConnectionError):
                connection.sendall(request)
                assert connection.recv(100).startswith(b"HTTP/1.1 4")

    withstands(server, f"content types of {length:,} semicolons", partial(all_together, 8, ask), key=ALICE)


_fresh = count()


def answer_as(schema: dict[str, Any]) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": schema}}}


def with_properties(required: bool) -> dict[str, Any]:
    names = [f"p{next(_fresh)}" for _ in range(3_000)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return answer_as({**schema, "required": names} if required else schema)


FORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "3,000 optional properties": lambda: with_properties(False),
    "3,000 required properties": lambda: with_properties(True),
    "an enum of 20,000": lambda: answer_as({"enum": [f"word{next(_fresh)}" for _ in range(20_000)]}),
    "an enum of 3,900": lambda: answer_as({"enum": [f"word{next(_fresh)}" for _ in range(3_900)]}),
    "3,000 alternatives": lambda: {"regex": "|".join(f"word{next(_fresh)}" for _ in range(3_000))},
    "7,900 characters of .*": lambda: {"regex": f"{next(_fresh)}{'.*' * 3_900}"},
    "60,000 escaped slashes": lambda: {"guided_grammar": f"start: /{next(_fresh)}" + "\\/" * 30_000},
    "a million characters without a space": lambda: {"input": f"{next(_fresh)}" + "é1" * 500_000},
    "60,000 slashes and line ends": lambda: {"input": f"{next(_fresh)}" + "/\n" * 30_000},
}


@pytest.mark.parametrize("form_of", FORMS)
def test_forms_that_take_long_to_compile(server: Attacked, form_of: str) -> None:
    def ask() -> None:
        body = {"input": "Hi", "max_output_tokens": 1, **FORMS[form_of]()}
        answer = httpx.post(f"{server.api}/responses", json=body, headers=HEADERS, timeout=120)
        assert answer.status_code in (200, 400, 503), answer.text

    withstands(server, form_of, partial(all_together, 4, ask), key=ALICE)


def test_clients_that_leave_many_choices_together(server: Attacked) -> None:
    body = {"prompt": ["a"] * 16, "n": 128, "stream": True, "max_tokens": 200}
    content = json.dumps(body).encode()
    head = HEAD.replace(b"responses", b"completions") + BY_MALLORY
    request = head + b"Content-Length: %d\r\n\r\n" % len(content) + content

    def stream_and_leave() -> None:
        for _ in range(3):
            clients = [server.connect() for _ in range(16)]
            for client in clients:
                client.sendall(request)
            until = time.monotonic() + 2
            for client in clients:
                client.settimeout(0.01)
                with suppress(TimeoutError):
                    while time.monotonic() < until and client.recv(2**20):
                        pass
            for client in clients:
                client.close()
            time.sleep(1)

    withstands(server, "16 clients leave 2,048 choices each, three times", stream_and_leave, key=ALICE)


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


PATIENCE = 3  # seconds


@pytest.fixture(scope="module")
def impatient() -> Iterator[Attacked]:
    with attacked("--request-timeout", str(PATIENCE), "--max-connections", "400") as impatient:
        yield impatient


def test_sixty_megabytes_of_headers(impatient: Attacked) -> None:
    with under_probe(impatient, "60 MB of one header"), impatient.connect() as connection:
        with suppress(OSError):
            connection.sendall(HEAD + b"X-Large: ")
            for _ in range(60):
                connection.sendall(b"a" * 2**20)
        with suppress(OSError):
            assert connection.recv(100).startswith(b"HTTP/1.1 431")
    with (
        under_probe(impatient, "60 MB of many headers"),
        impatient.connect() as connection,
        suppress(OSError),
    ):
        connection.sendall(HEAD)
        for _ in range(60):
            connection.sendall(b"X-A: b\r\n" * 2**17)


def test_clients_that_reset_their_connections(impatient: Attacked) -> None:
    body = b'{"input": "Tell me a story", "stream": true, "max_output_tokens": 200}'
    with under_probe(impatient, "60 clients that reset their connections"):
        for number in range(60):
            with impatient.connect() as connection:
                head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
                connection.sendall((head + body)[: -9 if number % 3 == 0 else None])
                if number % 3 == 1:
                    connection.recv(200)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(1)
    assert impatient.errors() == ""
