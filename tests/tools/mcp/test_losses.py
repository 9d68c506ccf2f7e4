"""Servers that die, restart, refuse, or do not speak MCP: a sentence each, and the next call works."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from typing import Any, Literal

import pytest

from tests.doubles.tools import echo_server
from tests.doubles.tools.echo_server import Seen, ServerThread, app_of, make_server
from tests.doubles.tools.mcp_helpers import SECRETS, answer, at, call, lifespan, soon
from tools.mcp.client import McpTool
from tools.mcp.endpoints import Credentials, StdioEndpoint
from tools.mcp.failures import McpFailure

PIPE = StdioEndpoint(sys.executable, (echo_server.__file__, "stdio"))
Kind = Literal["http", "sse"]


# The server that is killed leaves its own streams unclosed.
@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_dies_in_mid_call_fails_the_call_and_its_return_is_noticed(kind: Kind) -> None:
    seen = Seen()
    server = ServerThread(app_of(make_server(seen), kind))
    tool = McpTool(
        "echo", at(f"http://127.0.0.1:{server.port}/{'mcp' if kind == 'http' else 'sse'}"), timeout=10
    )
    session = tool.open()
    await tool.list()
    running = asyncio.ensure_future(call(session, "slow", seconds=30))
    assert await soon(seen.started)
    port = server.port
    await asyncio.to_thread(server.stop)
    output = await asyncio.wait_for(running, 8)
    assert output.failed
    assert (await call(session, "echo", text="anybody?")).failed
    server = ServerThread(app_of(make_server(seen), kind), port)
    assert (await call(session, "echo", text="back")).text == "back"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_server_that_restarted_between_calls_is_reconnected_to_without_a_failure() -> None:
    server = ServerThread(app_of(make_server(), "http"))
    port = server.port
    tool = McpTool("echo", at(f"http://127.0.0.1:{port}/mcp"), timeout=10)
    session = tool.open()
    assert (await call(session, "echo", text="one")).text == "one"
    await asyncio.to_thread(server.stop)
    server = ServerThread(app_of(make_server(), "http"), port)
    assert (await call(session, "echo", text="two")).text == "two"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_command_is_a_server_too_and_is_restarted_when_it_died() -> None:
    tool = McpTool("echo", PIPE, timeout=10)
    session = tool.open()
    assert (await call(session, "echo", text="hello")).text == "hello"
    died = await call(session, "die")
    assert died.failed
    assert "closed the connection" in died.text
    assert (await call(session, "echo", text="again")).text == "again"
    await tool.close()


async def test_a_missing_command_is_a_sentence() -> None:
    tool = McpTool("echo", StdioEndpoint("no-such-command-anywhere"))
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    assert "cannot be started" in output.text
    await tool.close()


async def test_a_command_that_does_not_speak_mcp_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    tool = McpTool("echo", StdioEndpoint(sys.executable, ("-c", "print('hello')")), timeout=5)
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    await tool.close()


async def test_a_missing_server_is_a_sentence_for_the_listing_too() -> None:
    tool = McpTool("echo", at("http://127.0.0.1:9/mcp"), timeout=5)
    with pytest.raises(McpFailure, match="cannot be connected to"):
        await tool.list()
    await tool.close()


async def test_a_refused_authorization_is_reported_but_not_shown() -> None:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await answer(send, 401, b"who is sesame-opens-9931?")

    server = ServerThread(guard)
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/mcp"), Credentials({"X-Key": SECRETS[0]}))
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    assert "status 401" in output.text
    assert SECRETS[0] not in output.text
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_server_whose_version_has_no_sessions_is_used_with_that_version() -> None:
    """It refuses the handshake with the versions that it supports, as the protocol requires."""
    inner = make_server().streamable_http_app()

    async def modern_only(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"")
        if scope["type"] == "lifespan" or version == b"2026-07-28":
            await inner(scope, receive, send)
            return
        error = {
            "code": -32022,
            "message": "No.",
            "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        await answer(send, 400, body, (b"content-type", b"application/json"))

    server = ServerThread(modern_only)
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/mcp"), timeout=5)
    session = tool.open()
    assert (await call(session, "echo", text="modern")).text == "modern"
    assert (await call(session, "has_a_space_and_dot")).text == "found"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_server_that_only_speaks_the_older_transport_is_found_at_any_url() -> None:
    server = ServerThread(make_server().sse_app(sse_path="/old", message_path="/messages/"))
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/old"), timeout=5)
    assert (await call(tool.open(), "echo", text="old")).text == "old"
    await tool.close()
    await asyncio.to_thread(server.stop)


@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
@pytest.mark.parametrize(
    ("status", "sentence"), [(404, "again"), (403, "authorization"), (503, "answered with status 503")]
)
async def test_over_sse_a_refused_message_is_not_waited_for(status: int, sentence: str) -> None:
    """It refuses once, then accepts messages again."""
    inner, refusals = make_server().sse_app(), list[int]()

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and refusals:
            await answer(send, refusals.pop(), b"no")
        else:
            await inner(scope, receive, send)

    server = ServerThread(refuses)
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/sse"), timeout=60)
    session = tool.open()
    assert (await call(session, "echo", text="one")).text == "one"
    refusals.append(status)
    assert sentence in (await asyncio.wait_for(call(session, "echo", text="again"), 20)).text
    assert (await call(session, "echo", text="two")).text == "two"
    await tool.close()
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(
    ("status", "body", "headers", "sentence"),
    [
        (200, b"[1, 2", [(b"content-type", b"application/json")], "not MCP"),
        (200, b"x" * 33_000_000, [(b"content-type", b"application/json")], "more data than the limit allows"),
        (
            200,
            gzip.compress(b"x" * 50_000_000),
            [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")],
            "more data than the limit allows",
        ),
        (200, b"<html>", [(b"content-type", b"text/html")], "not MCP"),
        (200, b"data: nonsense\n\n", [(b"content-type", b"text/event-stream")], "not MCP"),
        (202, b"", [], "not MCP"),
        (500, b"oops", [], "status 500"),
        (429, b"slow down", [], "status 429"),
        (404, b"nobody", [], "status 404"),
        (302, b"", [(b"location", b"http://10.0.0.1/")], "error"),
    ],
)
async def test_every_unexpected_response_is_a_failed_output(
    status: int, body: bytes, headers: list[tuple[bytes, bytes]], sentence: str
) -> None:
    async def strange(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await answer(send, status, body, *headers)

    server = ServerThread(strange)
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/mcp?key=hidden-in-query"), timeout=5)
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    assert sentence in output.text
    assert "hidden-in-query" not in output.text
    await tool.close()
    await asyncio.to_thread(server.stop)
