"""Attacks by one client, or by nobody, beside another client's stream and new requests."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

# Cases of these attacks too, and their fixtures.
from tests.deploy.test_proxies import postgres_url, setup, test_the_proxy_does_not_publish_the_figures  # noqa: F401
from tests.doubles.apis.hostile import SOCKET, filled, form
from tests.doubles.apis.keyed import ALICE, MALLORY
from tests.doubles.attacked import Attacked, attacked, withstands
from tests.doubles.commands import final, script
from tests.doubles.ops.certificates import write_certificate
from tests.ops.logs.test_logs import test_no_level_writes_keys_and_prompts_of_a_websocket  # noqa: F401
from tests.tools.test_fair_threads import test_slow_pages_of_one_owner_do_not_hold_up_the_pages_of_others  # noqa: F401
from tests.toolset.test_toolset import test_a_tool_server_that_starts_later  # noqa: F401

RATE = 50  # tokens per second of the stream beside an attack
PLACES = 2_048
SECONDS = 5.0
HEADERS = {"Authorization": f"Bearer {MALLORY}"}
BY_MALLORY = f"Authorization: Bearer {MALLORY}\r\n".encode()
HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n%s"


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
    "bodies of one key": HEAD % BY_MALLORY + b"Content-Length: 100\r\n\r\n{",
    "WebSockets of nobody": SOCKET % b"",
    "bodies of nobody": HEAD % b"Content-Length: 100\r\n\r\n{",
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
    head = (HEAD % BY_MALLORY).replace(b"responses", b"containers/none/files") + b"Content-Length: 2\r\n"
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
    head = HEAD.replace(b"responses", b"completions") % BY_MALLORY
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
