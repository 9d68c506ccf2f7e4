"""Results of servers built with other packages: the model reads their words, and no result is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.tools.mcp_helpers import at, call
from tests.doubles.tools.plain_server import ONE_TOOL, PlainServer, Refusal, plain_server, text
from tools.mcp.client import McpTool
from tools.mcp.failures import McpFailure

NEEDS_X = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize("more", [{}, {"structuredContent": {"x": "not a number"}}], ids=["none", "other"])
async def test_a_result_that_violates_its_schema_is_read_nevertheless(more: dict[str, Any]) -> None:
    tools = [{**ONE_TOOL, "outputSchema": NEEDS_X}]
    server = PlainServer(tools, lambda _: text("made", **more))
    async with plain_server(server) as url:
        tool = McpTool("plain", at(url), timeout=10)
        session = tool.open()
        outputs = [await call(session, "one"), await call(session, "one")]
        await tool.close()
    assert [(output.failed, output.text) for output in outputs] == [(False, "made")] * 2
    assert server.methods.count("initialize") == 1
    assert server.methods.count("tools/list") == 1, "a call needs the list once"


@pytest.mark.parametrize("code", [-32000, -32001])
async def test_a_servers_own_error_is_reported_and_the_connection_stays(code: int) -> None:
    server = PlainServer(called=lambda _: {"error": {"code": code, "message": "The quota is used up."}})
    async with plain_server(server) as url:
        tool = McpTool("plain", at(url), timeout=10)
        session = tool.open()
        first, second = await call(session, "one"), await call(session, "one")
        await tool.close()
    assert first.failed
    assert "The quota is used up." in first.text
    assert second.text == first.text
    assert server.methods.count("initialize") == 1


@pytest.mark.parametrize(
    "refusal",
    [
        (404, -32001, "Session not found"),
        (404, -32000, "Session not found"),
        (404, -32600, "Session not found"),
        (400, -32000, "Bad Request: No valid session ID provided"),
        (400, -32000, "Bad Request: Server not initialized"),
    ],
    ids=str,
)
async def test_a_forgotten_session_is_restarted_and_the_call_made(refusal: Refusal) -> None:
    def forgets(message: dict[str, Any], session: str) -> Refusal | None:
        return refusal if (message["method"], session) == ("tools/call", "s1") else None

    async with plain_server(PlainServer(refuses=forgets)) as url:
        tool = McpTool("plain", at(url), timeout=10)
        output = await call(tool.open(), "one")
        await tool.close()
    assert (output.failed, output.text) == (False, "done")


async def test_the_refusal_of_the_handshake_is_reported_and_not_the_missing_older_transport() -> None:
    def refuses(message: dict[str, Any], session: str) -> Refusal:
        return 400, -32000, "The header X-Tenant is missing."

    async with plain_server(PlainServer(refuses=refuses)) as url:
        tool = McpTool("plain", at(url), timeout=10)
        with pytest.raises(McpFailure, match="The header X-Tenant is missing"):
            await tool.list()
        await tool.close()
