"""Large bodies: none holds up other requests, whatever it consists of."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import httpx
import pytest

from tests.doubles.attacked import Attacked, attacked, under_probe

LIMIT = 16 * 1024**2
SEPARATORS = 480_000  # a few less than are taken


@pytest.fixture(scope="module")
def server() -> Iterator[Attacked]:
    with attacked() as server:
        yield server


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
    """Megabytes each: built when they are sent."""
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
def test_a_large_body(server: Attacked, path: str) -> None:
    for name in VALUES:
        post(server, path, name, BODIES[path])


@pytest.mark.parametrize("field", IN_FIELDS)
def test_a_large_field(server: Attacked, field: str) -> None:
    for name in VALUES:
        body = b'{"input": "x", "max_output_tokens": 1, ' + IN_FIELDS[field] + b"}"
        post(server, "/v1/responses", name, body, field)


def post(server: Attacked, path: str, name: str, body: bytes, field: str = "") -> None:
    with under_probe(server, f"{path} {field} with {name}"):
        answer = httpx.post(f"{server.url}{path}", content=body % value(name), timeout=120)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert len(answer.content) < 4_000, "an error echoes little"


def test_several_together(server: Attacked) -> None:
    names = ("objects", "lone surrogates", "text", "keys")
    bodies = [BODIES["/v1/responses"] % value(name) for name in names]
    with under_probe(server, "eight large bodies together"), ThreadPoolExecutor(8) as clients:
        url = f"{server.url}/v1/responses"
        sent = [clients.submit(httpx.post, url, content=body, timeout=300) for body in bodies * 2]
        assert {answer.result().status_code for answer in sent} <= {200, 400}
