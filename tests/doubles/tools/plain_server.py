"""A hand-written MCP server, for responses that the `mcp` package's own server does not give."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.tools.echo_server import ServerThread
from tests.doubles.tools.mcp_helpers import answer, lifespan

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
