"""This project's tools over MCP and back through its own client, and other servers' tools in their place."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from tests.contracts.tool_contract import ToolContract
from tests.doubles.server_process import free_port
from tests.doubles.tools import small_tools
from tests.doubles.tools.echo_server import PIXEL, ServerThread, app_of, make_server
from tests.doubles.tools.mcp_helpers import at, call, mcp_tool
from tests.doubles.tools.small_tools import Notes, Sums
from tests.doubles.waiting import until
from tools.browser import BrowserTool
from tools.browser.backends.local import LocalBackend
from tools.mcp.endpoints import McpSettingsError, StdioEndpoint
from tools.mcp.external import ExternalTool, external_tools, server_at, tool_server
from tools.mcp.failures import McpFailure
from tools.mcp.serve import ServedTool
from tools.tool import Tool, ToolCall
from tools.toolbox import Offer, Toolbox

SMALL_TOOLS = Path(small_tools.__file__)


@contextmanager
def served(tool: Tool) -> Iterator[tuple[str, ServedTool]]:
    over_mcp = ServedTool(tool)
    with ServerThread(over_mcp.app()) as server:
        yield server.url(), over_mcp


@contextmanager
def running(server: MCPServer, transport: Any = "http") -> Iterator[str]:
    with ServerThread(app_of(server, transport)) as thread:
        yield thread.url("mcp" if transport == "http" else "sse")


async def test_a_tool_with_functions_is_served_and_used_with_state_for_each_session() -> None:
    with served(Notes()) as (url, _):
        async with mcp_tool(url) as tool:
            listing = await tool.list()
            assert [entry.name for entry in listing.tools] == ["add", "all"]
            assert listing.tools[0].input_schema["required"] == ["text"]
            one, two = tool.open(), tool.open()
            for session, text in ((one, "bread"), (one, "wine"), (two, "cheese")):
                await call(session, "add", text=text)
            assert (await call(one, "all")).text == "bread, wine"
            assert (await call(two, "all")).text == "cheese"
            failed = await call(one, "add")
            assert failed.failed
            assert failed.text == "There is no text to add."


async def test_a_session_that_a_client_ends_also_ends_in_the_tool() -> None:
    notes = Notes()
    with served(notes) as (url, over_mcp):
        async with mcp_tool(url) as tool:
            session = tool.open()
            await call(session, "add", text="bread")
            assert over_mcp.sessions == 1
            await session.close()
            await until(lambda: (over_mcp.sessions, notes.closed) == (0, 1))


async def test_a_client_without_sessions_is_referred_to_versions_with_them() -> None:
    with served(Notes()) as (url, _):
        async with Client(url, mode="auto") as client:
            await client.call_tool("add", {"text": "bread"})
            await client.call_tool("add", {"text": "wine"})
            answer, unknown = await client.call_tool("all", {}), await client.call_tool("burn", {})
    assert answer.content[0].text == "bread, wine"  # type: ignore[union-attr]
    assert unknown.is_error
    assert "notes.add, notes.all" in unknown.content[0].text  # type: ignore[union-attr]


async def test_a_bare_tool_has_one_argument_and_its_images_stay_images() -> None:
    with served(Sums()) as (url, _):
        async with Client(url, mode="legacy") as client:
            listed = (await client.list_tools()).tools
            assert [entry.name for entry in listed] == ["python"]
            assert listed[0].input_schema["required"] == ["code"]
            answer = await client.call_tool("python", {"code": "1 + 2"})
    text, first, second = answer.content
    assert text.text == "3"  # type: ignore[union-attr]
    assert base64.b64decode(first.data) == base64.b64decode(second.data) == PIXEL  # type: ignore[union-attr]


async def test_a_served_command_is_one_conversation_and_its_prints_are_harmless() -> None:
    command = ("env", f"PYTHONPATH={SMALL_TOOLS.parents[3]}", sys.executable, str(SMALL_TOOLS), "notes")
    async with mcp_tool(StdioEndpoint(command[0], command[1:])) as tool:
        session = tool.open()
        for text in ("bread", "wine"):
            await call(session, "add", text=text)
        assert (await call(session, "all")).text == "bread, wine"


def reference_browser() -> MCPServer:
    """A browser with the tool names of the reference servers."""
    server = MCPServer("browser", instructions="Tool for browsing.")

    @server.tool()
    def search(query: str, topn: int = 10, source: str | None = None) -> str:
        return f"found {query} {topn}"

    @server.tool(name="open")
    def open_page(id: int | str = -1, cursor: int = -1) -> str:
        return f"opened {id}"

    @server.tool()
    def find(pattern: str, cursor: int = -1) -> str:
        return f"found {pattern}"

    return server


async def test_a_reference_browser_replaces_the_built_in_one() -> None:
    with running(reference_browser(), "sse") as url:
        (tool,) = await external_tools(tool_server(url))
        declared = tool.declaration
        assert (declared.namespace, declared.description) == ("browser", "Tool for browsing.")
        assert [function.name for function in declared.functions] == ["search", "open", "find"]
        assert "title" not in json.dumps(declared.functions[0].parameters)
        box = Toolbox([Offer(tool)])
        assert (await box.run("c", "browser.search", '{"query": "cats", "topn": 3}')).text == "found cats 3"
        assert (await box.run("c", "browser.open", "{}")).text == "opened -1"
        assert (await box.run("c", "browser.search", '{"query": ')).failed
        await box.close()


async def test_python_served_elsewhere_replaces_the_built_in_one() -> None:
    with served(Sums()) as (url, _):
        (tool,) = await external_tools(tool_server(url.removeprefix("http://")))
        assert (tool.declaration.namespace, tool.declaration.functions) == ("python", ())
        box = Toolbox([Offer(tool)])
        output = await box.run("c", "python", "20 + 22")
        direct = await Sums().run(ToolCall("", "20 + 22"))
        assert (output.text, output.details) == (direct.text, direct.details)
        assert (await box.run("c", "python", "one")).failed
        await box.close()


async def test_what_a_browser_found_comes_out_as_from_the_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "roses.md").write_text("# Roses\n\nThey grow in Sevastopol.\n")
    browser = BrowserTool(LocalBackend(tmp_path))
    with served(browser) as (url, _):
        (tool,) = await external_tools(tool_server(url))
        box, own = Toolbox([Offer(tool)]), Toolbox([Offer(browser)])
        for call, arguments in (("search", '{"query": "roses"}'), ("open", '{"id": 0}')):
            output = await box.run("c", f"browser.{call}", arguments)
            direct = await own.run("c", f"browser.{call}", arguments)
            assert (output.text, output.details) == (direct.text, direct.details)
            assert output.details["action"]
        await box.close()
        await own.close()


async def test_a_container_and_a_browser_may_share_a_server() -> None:
    server = reference_browser()

    @server.tool(name="exec")
    def execute(cmd: list[str]) -> str:
        return " ".join(cmd)

    with running(server) as url:
        tools = await external_tools(tool_server(url))
        assert [tool.declaration.namespace for tool in tools] == ["browser", "container"]
        assert [function.name for function in tools[1].declaration.functions] == ["exec"]
        box = Toolbox(Offer(tool) for tool in tools)
        assert (await box.run("c", "container.exec", '{"cmd": ["ls", "-l"]}')).text == "ls -l"
        assert (await box.run("c", "container.search", "{}")).failed
        await box.close()


async def test_a_server_that_provides_no_known_tool_is_refused_with_its_listing() -> None:
    with running(make_server()) as url:
        with pytest.raises(McpSettingsError, match="it lists echo, fail") as refused:
            await external_tools(tool_server(url))
        assert refused.value.param == "--tool-server"


async def test_a_missing_tool_server_is_a_sentence() -> None:
    with pytest.raises(McpFailure, match="The tool server cannot be used"):
        await external_tools(tool_server("127.0.0.1:9/mcp"))
    with pytest.raises(McpSettingsError):
        tool_server("ftp://x")


@pytest.fixture(scope="module")
def sums() -> Iterator[str]:
    with served(Sums()) as (url, _):
        yield url


class TestExternal(ToolContract):
    """This project's client, over HTTP, to one of its tools served over MCP."""

    url: str

    @pytest.fixture(autouse=True)
    def _served(self, sums: str) -> None:
        self.url = sums

    async def make(self) -> ExternalTool:
        (tool,) = await external_tools(server_at(at(self.url)))
        return tool

    def slow_call(self) -> ToolCall:
        return ToolCall("", "wait")


async def test_serving_over_http_ends_at_a_signal() -> None:
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(SMALL_TOOLS.parents[3])}
    command = (sys.executable, str(SMALL_TOOLS), "notes", str(port))
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        for _ in range(1200):  # a busy machine
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            await asyncio.sleep(0.05)
        async with mcp_tool(f"http://127.0.0.1:{port}/mcp") as tool:
            assert (await call(tool.open(), "add", text="bread")).text == "added"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) in (0, -signal.SIGTERM)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
