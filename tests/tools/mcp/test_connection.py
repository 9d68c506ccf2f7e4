"""Servers that die, restart, refuse, or do not speak MCP: a sentence each, and the next call works."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from tests.doubles.tools import mcp_helpers as helpers
from tests.doubles.tools.echo_server import Seen, ServerThread, app_of, make_server
from tests.doubles.tools.mcp_helpers import PlainServer, Refusal, answer, call, failure, mcp_tool, soon
from tools.mcp.endpoints import Credentials
from tools.mcp.failures import McpFailure

Kind = Literal["http", "sse"]
PATHS: dict[Kind, str] = {"http": "mcp", "sse": "sse"}
Answer = Callable[[Any, Any], Awaitable[None]]  # takes the scope and `send`
# A server that is killed, or that refuses a message of the older transport, leaves its streams unclosed.
leaves_streams = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


def app(answers: Answer) -> Any:
    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await helpers.lifespan(receive, send)
        else:
            await answers(scope, send)

    return asgi


@leaves_streams
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_dies_in_mid_call_fails_the_call_and_its_return_is_noticed(kind: Kind) -> None:
    seen = Seen()
    server = ServerThread(app_of(make_server(seen), kind))
    async with mcp_tool(server.url(PATHS[kind]), timeout=10) as tool:
        session = tool.open()
        await tool.list()
        running = asyncio.ensure_future(call(session, "slow", seconds=30))
        assert await soon(seen.started)
        port = server.port
        await asyncio.to_thread(server.stop)
        assert (await asyncio.wait_for(running, 8)).failed
        assert (await call(session, "echo", text="anybody?")).failed
        server = ServerThread(app_of(make_server(seen), kind), port)
        assert (await call(session, "echo", text="back")).text == "back"
    await asyncio.to_thread(server.stop)


async def test_a_server_that_restarted_between_calls_is_reconnected_to_without_a_failure() -> None:
    server = ServerThread(app_of(make_server(), "http"))
    async with mcp_tool(server.url(), timeout=10) as tool:
        session, port = tool.open(), server.port
        assert (await call(session, "echo", text="one")).text == "one"
        await asyncio.to_thread(server.stop)
        server = ServerThread(app_of(make_server(), "http"), port)
        assert (await call(session, "echo", text="two")).text == "two"
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(
    "refusal",
    [
        *((404, code, "Session not found") for code in (-32001, -32000, -32600)),
        (400, -32000, "Bad Request: No valid session ID provided"),
        (400, -32000, "Bad Request: Server not initialized"),
    ],
    ids=str,
)
async def test_a_forgotten_session_is_restarted_and_the_call_made(refusal: Refusal) -> None:
    def forgets(message: dict[str, Any], session: str) -> Refusal | None:
        return refusal if (message["method"], session) == ("tools/call", "s1") else None

    async with helpers.plain_server(PlainServer(refuses=forgets)) as url, mcp_tool(url, timeout=10) as tool:
        output = await call(tool.open(), "one")
    assert (output.failed, output.text) == (False, "done")


async def test_the_refusal_of_the_handshake_is_reported_and_not_the_missing_older_transport() -> None:
    def refuses(message: dict[str, Any], session: str) -> Refusal:
        return 400, -32000, "The header X-Tenant is missing."

    async with helpers.plain_server(PlainServer(refuses=refuses)) as url, mcp_tool(url, timeout=10) as tool:
        with pytest.raises(McpFailure, match="The header X-Tenant is missing"):
            await tool.list()


async def test_a_server_whose_version_has_no_sessions_is_used_with_that_version() -> None:
    """It refuses the handshake with the versions that it supports, as the protocol requires."""
    inner = make_server().streamable_http_app()

    async def modern_only(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"")
        if scope["type"] == "lifespan" or version == b"2026-07-28":
            await inner(scope, receive, send)
            return
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        error = {"code": -32022, "message": "No.", "data": data}
        await answer(send, 400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), JSON)

    with ServerThread(modern_only) as server:
        async with mcp_tool(server.url(), timeout=5) as tool:
            session = tool.open()
            assert (await call(session, "echo", text="modern")).text == "modern"
            assert (await call(session, "has_a_space_and_dot")).text == "found"


async def test_a_server_that_only_speaks_the_older_transport_is_found_at_any_url() -> None:
    with ServerThread(make_server().sse_app(sse_path="/old", message_path="/messages/")) as server:
        async with mcp_tool(server.url("old"), timeout=5) as tool:
            assert (await call(tool.open(), "echo", text="old")).text == "old"


@leaves_streams
@pytest.mark.parametrize(
    ("status", "sentence"), [(404, "again"), (403, "authorization"), (503, "answered with status 503")]
)
async def test_over_sse_a_refused_message_is_not_waited_for(status: int, sentence: str) -> None:
    inner, refusals = make_server().sse_app(), list[int]()

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and refusals:
            await answer(send, refusals.pop(), b"no")
        else:
            await inner(scope, receive, send)

    with ServerThread(refuses) as server:
        async with mcp_tool(server.url("sse"), timeout=60) as tool:
            session = tool.open()
            assert (await call(session, "echo", text="one")).text == "one"
            refusals.append(status)
            assert sentence in (await asyncio.wait_for(call(session, "echo", text="again"), 20)).text
            assert (await call(session, "echo", text="two")).text == "two"


@pytest.mark.parametrize("more", [{}, {"structuredContent": {"x": "not a number"}}], ids=["none", "other"])
async def test_a_result_that_violates_its_schema_is_read_nevertheless(more: dict[str, Any]) -> None:
    needs_x = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    server = PlainServer(
        [{**helpers.ONE_TOOL, "outputSchema": needs_x}], lambda _: helpers.text("made", **more)
    )
    async with helpers.plain_server(server) as url, mcp_tool(url, timeout=10) as tool:
        session = tool.open()
        outputs = [await call(session, "one"), await call(session, "one")]
    assert [(output.failed, output.text) for output in outputs] == [(False, "made")] * 2
    assert server.methods.count("initialize") == 1
    assert server.methods.count("tools/list") == 1, "a call needs the list once"


@pytest.mark.parametrize("code", [-32000, -32001])
async def test_a_servers_own_error_is_reported_and_the_connection_stays(code: int) -> None:
    server = PlainServer(called=lambda _: {"error": {"code": code, "message": "The quota is used up."}})
    async with helpers.plain_server(server) as url, mcp_tool(url, timeout=10) as tool:
        session = tool.open()
        first, second = await failure(session, "one"), await failure(session, "one")
    assert "The quota is used up." in first
    assert second == first
    assert server.methods.count("initialize") == 1


async def test_a_refused_authorization_is_reported_but_not_shown() -> None:
    async def guard(scope: Any, send: Any) -> None:
        await answer(send, 401, b"who is sesame-opens-9931?")

    with ServerThread(app(guard)) as server:
        async with mcp_tool(server.url(), credentials=Credentials({"X-Key": helpers.SECRETS[0]})) as tool:
            told = await failure(tool.open(), "echo", text="hello")
    assert "status 401" in told
    assert helpers.SECRETS[0] not in told


# Answers that are not MCP: one sentence in the log, no traceback.

NOT_MCP = "answered with something that is not MCP."
TOO_MUCH = "answered with more data than the limit allows."
JSON, _HTML = (b"content-type", b"application/json"), (b"content-type", b"text/html")
_EVENTS, _GZIP = (b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")
_ELSEWHERE = (b"location", b"http://10.0.0.1/")
REPLIES: dict[str, tuple[int, bytes, tuple[tuple[bytes, bytes], ...], str]] = {
    "broken JSON": (200, b"[1, 2", (JSON,), NOT_MCP),
    "other JSON": (200, b'{"a": 1}', (JSON,), NOT_MCP),
    "HTML": (200, b"<html>", (_HTML,), NOT_MCP),
    "no content type": (200, b"x", (), NOT_MCP),
    "nonsense events": (200, b"data: nonsense\n\n", (_EVENTS,), NOT_MCP),
    "no answer": (202, b"", (), NOT_MCP),
    "an error page": (500, b"<html>", (_HTML,), "answered with status 500."),
    "half an answer": (200, b'{"jsonrpc"', ((b"content-length", b"500"),), "broke off the connection."),
}
OTHER_REPLIES = {
    "too large": (200, b"x" * 33_000_000, (JSON,), TOO_MUCH),
    "compressed": (200, gzip.compress(b"x" * 50_000_000), (JSON, _GZIP), TOO_MUCH),
    "too many requests": (429, b"slow down", (), "answered with status 429."),
    "nothing here": (404, b"nobody", (), "answered with status 404."),
    "a redirect": (302, b"", (_ELSEWHERE,), "error"),
}


class Misbehaving(PlainServer):
    def __init__(self, reply: str, method: str) -> None:
        super().__init__()
        self._reply, self._method = (REPLIES | OTHER_REPLIES)[reply], method

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await super().__call__(scope, receive, send)
            return
        body = await helpers.body_of(receive)

        async def again() -> helpers.Json:
            return {"type": "http.request", "body": body}

        if json.loads(body).get("method") == self._method:
            status, content, headers, _ = self._reply
            if headers and headers[0][0] == b"content-length":
                await _break_off(send, status, content, headers[0])
            await answer(send, status, content, *headers)
        else:
            await super().__call__(scope, again, send)


async def _break_off(send: Any, status: int, content: bytes, length: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length]})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    raise ConnectionAbortedError("as a server that dies")


class OtherVersion(PlainServer):
    def _answer(self, message: Any) -> helpers.Json:
        reply = super()._answer(message)
        if message["method"] == "initialize":
            reply["result"]["protocolVersion"] = "1999-01-01"
        return reply


@pytest.mark.parametrize(
    ("reply", "method"),
    [
        *((reply, method) for reply in REPLIES for method in ("initialize", "tools/list", "tools/call")),
        *((reply, "initialize") for reply in OTHER_REPLIES),
    ],
)
async def test_an_http_server(reply: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    await _check(Misbehaving(reply, method), (REPLIES | OTHER_REPLIES)[reply][3], caplog)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (OtherVersion(), "speaks a version of MCP that this server does not."),
        (PlainServer(called=lambda _: {"result": {"content": "none"}}), NOT_MCP),
    ],
    ids=["version", "shape"],
)
async def test_another(server: PlainServer, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    await _check(server, sentence, caplog)


@leaves_streams
@pytest.mark.parametrize(
    "content", [b"data: nonsense\n\n", b"event: endpoint\ndata: http://other.example/\n\n", b"<html>", b""]
)
async def test_a_stream_of_the_older_transport(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def strange(scope: Any, send: Any) -> None:
        await answer(send, 200 if scope["method"] == "GET" else 405, content, _EVENTS)

    await _check(app(strange), None, caplog, path="sse")


async def _check(
    server: Any, sentence: str | None, caplog: pytest.LogCaptureFixture, path: str = "mcp"
) -> None:
    with ServerThread(server) as thread:
        async with mcp_tool(thread.url(f"{path}?key=hidden-in-query"), "odd", timeout=10) as tool:
            await helpers.check_failure(tool, sentence, caplog)
