"""Shared helpers for tests of MCP tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tools.mcp.endpoints import Endpoint, http_endpoint
from tools.tool import Session, ToolCall, ToolOutput

SECRETS = ("sesame-opens-9931", "tok-4411-7788", "Bearer tok-4411-7788")


def at(url: str) -> Endpoint:
    return http_endpoint(url, trusted=True)[0]


async def call(session: Session, function: str, **arguments: Any) -> ToolOutput:
    return await session.run(ToolCall(function, json.dumps(arguments)))


async def soon(happened: Any) -> bool:
    """Whether a thread's event is set within a few seconds."""
    return bool(await asyncio.to_thread(happened.wait, 5))


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})


async def answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
