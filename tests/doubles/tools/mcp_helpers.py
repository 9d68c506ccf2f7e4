"""What tests of MCP share, and a hand-written server for responses that the `mcp` package's does not give."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.doubles.tools.echo_server import ServerThread
from tests.doubles.tools.scripted_tool import call as call
from tests.doubles.tools.scripted_tool import failure as failure
from tools.mcp.client import McpTool
from tools.mcp.endpoints import Endpoint, http_endpoint

SECRETS = ("sesame-opens-9931", "tok-4411-7788", "Bearer tok-4411-7788")


def at(url: str) -> Endpoint:
    return http_endpoint(url, trusted=True)[0]


@asynccontextmanager
async def mcp_tool(target: str | Endpoint, label: str = "echo", **settings: Any) -> AsyncIterator[McpTool]:
    tool = McpTool(label, at(target) if isinstance(target, str) else target, **settings)
    try:
        yield tool
    finally:
        await tool.close()


async def soon(happened: Any) -> bool:
    """Whether a thread's event is set within a few seconds."""
    return bool(await asyncio.to_thread(happened.wait, 5))


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})


async def answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def check_failure(tool: McpTool, sentence: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """A call fails with the sentence, which the log has in one line without a traceback."""
    with caplog.at_level(logging.INFO):
        output = await call(tool.open(), "one")
        await tool.close()
    assert output.failed
    lines = [record for record in caplog.records if not record.name.startswith("uvicorn")]
    assert not [record.getMessage() for record in lines if record.exc_info]
    [line] = [record.getMessage() for record in lines if record.levelno >= logging.WARNING]
    assert "'odd'" in line
    assert "\n" not in line
    for shown in (output.text, line):
        assert sentence is None or sentence in shown
        assert "hidden-in-query" not in shown


Json = dict[str, Any]
Refusal = tuple[int, int, str]  # status, code, message
_JSON = (b"content-type", b"application/json")
ONE_TOOL: Json = {"name": "one", "inputSchema": {"type": "object"}}


def text(content: str, **more: Any) -> Json:
    return {"result": {"content": [{"type": "text", "text": content}], **more}}


@dataclass
class PlainServer:
    """Serves JSON over HTTP, in sessions `s1`, `s2` … `refuses` may refuse a message in a session."""

    tools: list[Json] = field(default_factory=lambda: [ONE_TOOL])
    called: Callable[[Json], Json] = lambda _: text("done")
    refuses: Callable[[Json, str], Refusal | None] = lambda message, session: None
    methods: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["method"] != "POST":
            await answer(send, 405, b"")
            return
        message = json.loads(await body_of(receive))
        session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        self.methods.append(message["method"])
        if (refusal := self.refuses(message, session)) is not None:
            status, code, sentence = refusal
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": sentence}}
            await answer(send, status, json.dumps(error).encode(), _JSON)
        elif "id" not in message:
            await answer(send, 202, b"")
        else:
            number = self.methods.count("initialize")
            reply = {"jsonrpc": "2.0", "id": message["id"], **self._answer(message)}
            opened = (b"mcp-session-id", f"s{number}".encode())
            headers = [opened] if message["method"] == "initialize" else []
            await answer(send, 200, json.dumps(reply).encode(), _JSON, *headers)

    def _answer(self, message: Mapping[str, Any]) -> Json:
        match message["method"]:
            case "initialize":
                info = {"name": "plain", "version": "1"}
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                return {"result": about}
            case "tools/list":
                return {"result": {"tools": self.tools}}
            case "tools/call":
                return self.called(message["params"])
            case _:
                return {"error": {"code": -32601, "message": "There is no such method."}}


@asynccontextmanager
async def plain_server(server: PlainServer) -> AsyncIterator[str]:
    with ServerThread(server) as thread:
        yield thread.url()


async def body_of(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body
