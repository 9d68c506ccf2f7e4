"""Servers: this project's tools over MCP and back, others' tools in their place, and commands."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.server.mcpserver import MCPServer

from tests.doubles.tools import echo_server, small_tools
from tests.doubles.tools.calling import lives, processes
from tests.doubles.tools.echo_server import PIXEL, ServerThread, app_of, make_server
from tests.doubles.tools.mcp_helpers import call, check_failure, failure, mcp_tool
from tests.doubles.tools.small_tools import Notes, Sums
from tests.doubles.waiting import until
from tools.browser import BrowserTool
from tools.browser.backends.local import LocalBackend
from tools.mcp import client as client_module
from tools.mcp.endpoints import McpSettingsError, StdioEndpoint
from tools.mcp.external import external_tools, tool_server
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
            assert await failure(one, "add") == "There is no text to add."


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
    with pytest.raises(McpFailure, match=r"The tool server cannot be used\. .*cannot be connected to"):
        await external_tools(tool_server("127.0.0.1:9/mcp"))
    with pytest.raises(McpSettingsError):
        tool_server("ftp://x")


ECHO = StdioEndpoint(sys.executable, (echo_server.__file__, "stdio"))
NO_COMMAND = StdioEndpoint("no-such-command-anywhere")
CLOSED = "closed the connection before it answered."
ODD = r"sys.stdout.buffer.write(b'\xff\n')"
ENDS = ("print('<html>')", ODD, "print('{\"jsonrpc\"', end='')", "sys.exit(3)")


def python(source: str) -> StdioEndpoint:
    return StdioEndpoint(sys.executable, ("-c", source))


async def test_a_command_is_restarted_when_it_died() -> None:
    async with mcp_tool(ECHO, timeout=10) as tool:
        session = tool.open()
        assert (await call(session, "echo", text="hi 東京")).text == "hi 東京"
        assert "closed the connection" in await failure(session, "die")
        assert (await call(session, "echo", text="again")).text == "again"


async def test_a_missing_command_is_a_sentence() -> None:
    async with mcp_tool(NO_COMMAND) as tool:
        assert "cannot be started" in await failure(tool.open(), "echo", text="hello")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('hello')", CLOSED),
        ("import sys\nfor _ in sys.stdin: print('{}', flush=True)", "did not answer within 2 seconds."),
        *((f"import sys; sys.stdin.readline(); {end}", CLOSED) for end in ENDS),
    ],
)
async def test_a_command(code: str, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_tool(python(code), "odd", timeout=2) as tool:
        await check_failure(tool, sentence, caplog)


@pytest.mark.parametrize(
    "source",
    [
        "import time; print('x' * 10**6, flush=True); time.sleep(60)",
        "import sys; [print('no json', flush=True) for _ in range(10**6)]",
        "import os, sys; os.close(0); import time; time.sleep(60)",
    ],
    ids=["a long line", "babble", "deaf"],
)
async def test_a_command_that_does_not_speak_mcp_fails(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_LISTING_SECONDS", 2.0)
    async with asyncio.timeout(60), mcp_tool(python(source)) as tool:
        with pytest.raises(McpFailure):
            await tool.list()


async def test_a_command_that_does_not_exit_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal, time;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    async with mcp_tool(python(source)) as tool:
        listing = asyncio.create_task(tool.list())
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    await asyncio.gather(listing, return_exceptions=True)
    server, child = map(int, pids.read_text().split())
    await until(lambda: not lives(server) and not lives(child))


async def test_no_descriptor_stays_open_however_it_ends() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def once(endpoint: StdioEndpoint) -> None:
        async with mcp_tool(endpoint) as tool:
            await asyncio.gather(tool.list(), return_exceptions=True)

    await once(ECHO)
    before = open_files()
    for endpoint in (ECHO, python("raise SystemExit"), NO_COMMAND) * 2:
        await once(endpoint)
    await asyncio.sleep(0.05)
    assert open_files() <= before


async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    before = processes()
    async with asyncio.timeout(60), mcp_tool(ECHO) as tool:
        listing = asyncio.create_task(tool.list())
        await asyncio.sleep(0.05)
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    await until(lambda: processes() <= before)
