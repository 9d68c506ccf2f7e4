"""Shared helpers for tests of MCP tools."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

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
