"""Servers and commands that answer with something other than MCP: one sentence in the log, no traceback."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from tests.doubles.tools.echo_server import ServerThread
from tests.doubles.tools.mcp_helpers import answer, at, call, lifespan
from tests.doubles.tools.plain_server import Json, PlainServer, body_of
from tools.mcp.client import McpTool
from tools.mcp.endpoints import StdioEndpoint

NOT_MCP = "answered with something that is not MCP."
_JSON, _HTML = (b"content-type", b"application/json"), (b"content-type", b"text/html")
_EVENTS = (b"content-type", b"text/event-stream")
REPLIES: dict[str, tuple[int, bytes, tuple[bytes, bytes] | None, str]] = {
    "broken JSON": (200, b"[1, 2", _JSON, NOT_MCP),
    "other JSON": (200, b'{"a": 1}', _JSON, NOT_MCP),
    "HTML": (200, b"<html>", _HTML, NOT_MCP),
    "no content type": (200, b"x", None, NOT_MCP),
    "nonsense events": (200, b"data: nonsense\n\n", _EVENTS, NOT_MCP),
    "no answer": (202, b"", None, NOT_MCP),
    "an error page": (500, b"<html>", _HTML, "answered with status 500."),
    "half an answer": (200, b'{"jsonrpc"', (b"content-length", b"500"), "broke off the connection."),
}


class Misbehaving(PlainServer):
    """Answers messages of one method with something else."""

    def __init__(self, reply: str, method: str) -> None:
        super().__init__()
        self._reply, self._method = REPLIES[reply], method

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await super().__call__(scope, receive, send)
            return
        body = await body_of(receive)

        async def again() -> Json:
            return {"type": "http.request", "body": body}

        if json.loads(body).get("method") == self._method:
            status, content, header, _ = self._reply
            if header is not None and header[0] == b"content-length":
                await _breaks_off(send, status, content, header)
            await answer(send, status, content, *([] if header is None else [header]))
        else:
            await super().__call__(scope, again, send)


async def _breaks_off(send: Any, status: int, content: bytes, length: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length]})
    await send({"type": "http.response.body", "body": content, "more_body": True})
    raise ConnectionAbortedError("as a server that dies")


class OtherVersion(PlainServer):
    def _answer(self, message: Any) -> Json:
        found = super()._answer(message)
        if message["method"] == "initialize":
            found["result"]["protocolVersion"] = "1999-01-01"
        return found


@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
@pytest.mark.parametrize("reply", REPLIES)
async def test_an_http_server(reply: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    await _check_server(Misbehaving(reply, method), REPLIES[reply][3], caplog)


async def test_another_version(caplog: pytest.LogCaptureFixture) -> None:
    await _check_server(OtherVersion(), "speaks a version of MCP that this server does not.", caplog)


async def test_a_result_of_another_shape(caplog: pytest.LogCaptureFixture) -> None:
    await _check_server(PlainServer(called=lambda _: {"result": {"content": "none"}}), NOT_MCP, caplog)


@pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")
@pytest.mark.parametrize(
    "content", [b"data: nonsense\n\n", b"event: endpoint\ndata: http://other.example/\n\n", b"<html>", b""]
)
async def test_an_event_stream_of_the_older_transport(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def strange(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await answer(send, 200 if scope["method"] == "GET" else 405, content, _EVENTS)

    await _check_server(strange, None, caplog, path="sse")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('hello')", "closed the connection before it answered."),
        ("import sys; sys.stdin.readline(); print('<html>')", "closed the connection before it answered."),
        ("import sys\nfor _ in sys.stdin: print('{}', flush=True)", "did not answer within 2 seconds."),
        ("import sys; sys.stdin.readline(); sys.stdout.buffer.write(b'\\xff\\n')", "closed the connection"),
        ("import sys; sys.stdin.readline(); print('{\"jsonrpc\"', end='')", "closed the connection"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "closed the connection"),
    ],
)
async def test_a_command(code: str, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    tool = McpTool("odd", StdioEndpoint(sys.executable, ("-c", code)), timeout=2)
    await _check(tool, sentence, caplog)


async def _check_server(
    server: Any, sentence: str | None, caplog: pytest.LogCaptureFixture, path: str = "mcp"
) -> None:
    thread = ServerThread(server)
    await _check(McpTool("odd", at(f"http://127.0.0.1:{thread.port}/{path}"), timeout=10), sentence, caplog)
    await asyncio.to_thread(thread.stop)


async def _check(tool: McpTool, sentence: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        output = await call(tool.open(), "one")
        await tool.close()
    assert output.failed
    assert sentence is None or sentence in output.text
    lines = [record for record in caplog.records if not record.name.startswith("uvicorn")]
    assert not [record.getMessage() for record in lines if record.exc_info]
    [line] = [record.getMessage() for record in lines if record.levelno >= logging.WARNING]
    assert "'odd'" in line
    assert sentence is None or sentence in line
    assert "\n" not in line
