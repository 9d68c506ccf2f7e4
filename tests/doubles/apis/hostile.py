"""Hostile requests of any size: forms, headers, frames, bodies of many entries. Rows make what reads them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Message

from gpt_oss_server.apis.messages.tools import read_tools
from gpt_oss_server.app import create_app
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.http.uploads import read_upload
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import upload_request
from tests.doubles.apis.asking import responses_service
from tests.doubles.apis.chat_asking import service_of
from tests.doubles.apis.messages_asking import messages_service
from tests.doubles.serving import scripted, serving

Read = Callable[[], object]
Row = Callable[[int], Read]  # the size of an input → what reads such an input
ANSWER = "<|channel|>final<|message|>Hello.<|return|>"
OFF = Settings(python="off", browser="off")
FORM = "multipart/form-data; boundary=x"


def filled(unit: str, size: int) -> str:
    return unit * (size // len(unit) + 1)


def upload(body: str, kind: str = FORM) -> Read:
    return lambda: asyncio.run(read_upload(upload_request(body.encode(), content_type=kind), 2**25))


def form(disposition: str) -> str:
    return f"--x\r\nContent-Disposition: form-data; {disposition}\r\n\r\na,b\r\n--x--\r\n"


UPLOADS: dict[str, Row] = {
    "semicolons": lambda n: upload(form('name="file"' + ";" * n)),
    "parameters": lambda n: upload(form('name="file"' + filled(';a="b\\', n))),
    "boundaries": lambda n: upload(filled("\r\n--x", n)),
    "almost boundaries": lambda n: upload("\r\n--" + "a" * n, f"{FORM[:-1]}{'a' * 69}b"),
    "a type": lambda n: upload("", FORM + ";" * n),
    "quotes in a type": lambda n: upload("", "multipart/form-data" + filled(';boundary="', n)),
}


@cache
def app() -> Any:
    return create_app(scripted(ANSWER), OFF)


def head(name: str, unit: str, size: int) -> Read:
    sent = {"host": "localhost", "content-type": "application/json", name: filled(unit, size)}
    method, path = ("GET", "/metrics") if name.startswith("accept") else ("POST", "/v1/responses")
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": b"",
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "root_path": "",
        "headers": [(key.encode(), value.encode()) for key, value in sent.items()],
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": b"[]", "more_body": False}

    async def send(message: Message) -> None:
        pass

    return lambda: asyncio.run(app()(scope | {"state": {}}, receive, send))


UNITS = {
    "cookie": (";", 'a="\\', "a=b; "),
    "accept": (",", "a;q=", "text/plain;version=0.0.4,", ' ;"'),
    "accept-encoding": (",", "gzip;"),
    "content-type": (";", 'a="\\', "application/json;a=b "),
    "authorization": ("Bearer ", " "),
    "host": ("a.", "[", ":0"),
    "origin": ("http://", "a.", ":"),
    "traceparent": ("00-", "-"),
}
HEADERS: dict[str, Row] = {
    f"{name}: {unit * 3}": partial(head, name, unit) for name, units in UNITS.items() for unit in units
}
_server = serving(scripted(ANSWER), OFF)


@cache
def address() -> tuple[str, int]:
    """Of a server in this process, which ends with it."""
    return "127.0.0.1", urlsplit(_server.__enter__()).port or 0


def sent(data: bytes, opening: bytes = b"") -> Read:
    """`opening`: a request for a WebSocket, whose answer must arrive before the first frame is sent."""

    def send() -> None:
        with socket.create_connection(address(), timeout=60) as connection, suppress(ConnectionError):
            connection.sendall(opening)
            if opening:
                assert b" 101 " in connection.recv(4_096)
            connection.sendall(data)
            while connection.recv(65_536):
                pass

    return send


SOCKET = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n"
)
POST = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
MASK = b"\0\0\0\0"
CLOSE = b"\x88\x80" + MASK


def frames(n: int) -> Read:
    rest = (b"\x00\x81" + MASK + b" ") * (n // 7) + b"\x80\x80" + MASK + CLOSE
    return sent(b"\x01\x81" + MASK + b"{" + rest, SOCKET % b"")


CONNECTIONS: dict[str, Row] = {
    "chunks of a byte": lambda n: sent(CHUNKED + b"1\r\n \r\n" * (n // 6) + b"0\r\n\r\n"),
    "headers of a byte": lambda n: sent(POST + b"a:b\r\n" * (n // 5) + b"\r\n"),
    "frames of a byte": frames,
    "pings": lambda n: sent((b"\x89\x80" + MASK) * (n // 6) + CLOSE, SOCKET % b""),
}

RESPONSES = responses_service(scripted(ANSWER), OFF)
CHAT, MESSAGES = service_of(scripted(ANSWER)), messages_service(scripted(ANSWER))
Ask = Callable[[Any, Any], Awaitable[object]]
SAYS = {"messages": [{"role": "user", "content": "a"}]}
CLEARS = {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}
TYPED = {"type": "object", "properties": {"a": {"type": "string"}}}


def entries(ask: Ask, field: str, each: Callable[[int], list[Any]], size: int, **more: Any) -> Row:
    """Requests whose field has as many entries as fit; `size` is that of what `each` returns."""

    def row(n: int) -> Read:
        body = {**more, field: [entry for number in range(n // size + 1) for entry in each(number)]}

        async def run() -> None:
            await ask(LOCAL, body)

        return lambda: asyncio.run(run())

    return row


def said(number: int) -> list[Any]:
    return [{"role": "user", "content": str(number)}]


def call(number: int) -> list[Any]:
    made = {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}
    return [made, {"type": "function_call_output", "call_id": f"c{number}", "output": "a"}]


def chat_call(number: int) -> list[Any]:
    made = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": f"c{number}", "content": "a"}
    return [{"role": "assistant", "content": None, "tool_calls": [made]}, result]


def block_call(number: int) -> list[Any]:
    made = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "a"}
    return [{"role": "assistant", "content": [made]}, {"role": "user", "content": [result]}]


def thought(number: int) -> list[Any]:
    thinking = {"type": "thinking", "thinking": "a", "signature": "b"}
    answer = {"role": "assistant", "content": [thinking, {"type": "text", "text": "b"}]}
    return [*said(number), answer]


def function(number: int) -> list[Any]:
    return [{"type": "function", "name": f"f{number}", "parameters": TYPED}]


def loaded(number: int) -> list[Any]:
    return [{"type": "additional_tools", "role": "developer", "tools": function(number)}]


def space(number: int) -> list[Any]:
    return [{"type": "namespace", "name": f"n{number}", "description": "a", "tools": function(number)}]


def of_both_sides(number: int) -> list[Any]:
    search = {"type": "web_search_20250305", "name": "web_search"}
    return [{"name": f"f{number}", "input_schema": TYPED}, search]


def allowed(n: int) -> Read:
    tools = [tool for number in range(n // 200) for tool in function(number)]
    named = [{"type": "function", "name": tool["name"]} for tool in tools]
    body = {"input": "a", "tools": tools, "tool_choice": {"type": "allowed_tools", "tools": named}}
    return lambda: asyncio.run(RESPONSES.count(LOCAL, body))


def configured(n: int) -> Read:
    configs = {f"t{number}": {"enabled": True} for number in range(n // 30)}
    tools = [{"type": "mcp_toolset", "mcp_server_name": "a", "configs": configs}]
    return partial(read_tools, tools, [{"type": "url", "name": "a", "url": "http://a"}], None)


REQUESTS: dict[str, Row] = {
    "items": entries(RESPONSES.count, "input", said, 35),
    "calls": entries(RESPONSES.count, "input", call, 140),
    "loaded tools": entries(RESPONSES.count, "input", loaded, 160),
    "namespaces": entries(RESPONSES.count, "tools", space, 180, input="a"),
    "functions": entries(RESPONSES.count, "tools", function, 110, input="a"),
    "allowed tools": allowed,
    "chat": entries(CHAT.prompt, "messages", said, 35),
    "calls in a chat": entries(CHAT.prompt, "messages", chat_call, 190),
    "turns of thinking": entries(MESSAGES.count, "messages", thought, 160),
    "cleared thinking": entries(MESSAGES.count, "messages", thought, 160, **CLEARS),
    "blocks of calls": entries(MESSAGES.count, "messages", block_call, 200),
    "tools of both sides": entries(MESSAGES.count, "tools", of_both_sides, 170, **SAYS),
    "tools of a server": configured,
}
