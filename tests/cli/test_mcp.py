"""This project's tools served over MCP, as another program's client sees them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ImageContent, TextContent

from gpt_oss_server.cli.server.http_server import listen
from gpt_oss_server.cli.terminal.console import CommandLineError
from tests.doubles.commands import terminal
from tests.doubles.processes.forked import Command
from tests.tools.python.conftest import bubblewrap

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    (tmp_path / "fjord.md").write_text("# The fjord\n\nThe fjord is deep.\n")
    return tmp_path


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(shelf: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of `mcp browser --http` in a process of its own."""
    host: str = request.param
    try:
        with listen(host, 0) as free:
            port = str(free.getsockname()[1])
    except CommandLineError:
        pytest.skip(f"{host} is not available")
    words = ["mcp", "browser", "--browser", f"local:{shelf}", "--http", "--host", host, "--port", port]
    process = Command[str](words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = f"http://[{host}]:{port}/mcp" if ":" in host else f"http://{host}:{port}/mcp"
    assert url in process.stderr.readline()
    yield url
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait(15) in (0, 130, -signal.SIGINT)
    process.stderr.close()


@pytest.fixture
def quiet() -> Iterator[TextIO]:
    with Path(os.devnull).open("w") as nowhere:
        yield nowhere


def text_of(result: CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, TextContent))


def on_stdio(quiet: TextIO, *words: str) -> Client:
    command = StdioServerParameters(command=sys.executable, args=["-m", "gpt_oss_server", "mcp", *words])
    return Client(stdio_client(command, errlog=quiet))


async def test_the_browser_on_stdio(shelf: Path, quiet: TextIO) -> None:
    async with on_stdio(quiet, "browser", "--browser", f"local:{shelf}") as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == {"search", "open", "find"}
        results = await client.call_tool("search", {"query": "fjord"})
        page = await client.call_tool("open", {"id": 0})
    assert "fjord" in text_of(results)
    assert "The fjord is deep." in text_of(page)


async def test_python_on_stdio_keeps_state_and_returns_images(quiet: TextIO) -> None:
    await asyncio.to_thread(bubblewrap)  # skips where there is none
    async with on_stdio(quiet, "python", "--python", "bubblewrap") as client:
        await client.call_tool("python", {"code": "x = 6"})
        answer = await client.call_tool("python", {"code": "x * 7"})
        plot = await client.call_tool("python", {"code": PLOT})
    assert "42" in text_of(answer)
    assert any(isinstance(part, ImageContent) for part in plot.content)


async def test_the_browser_over_http(served: str) -> None:
    async with Client(streamable_http_client(served)) as client:
        assert "fjord" in text_of(await client.call_tool("search", {"query": "fjord"}))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_its_input_is_open(shelf: Path, number: signal.Signals) -> None:
    client = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    params = {"protocolVersion": "2025-06-18", **client}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    words = ["mcp", "browser", "--browser", f"local:{shelf}"]
    with Command[str](words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(hello) + "\n")
        process.stdin.flush()
        assert "serverInfo" in process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(15) == 128 + number
        finally:
            process.kill()


def test_a_user_who_starts_it_in_a_terminal_reads_who_does_that_and_how_it_ends() -> None:
    with terminal("python", "--python", "unsafe-local", command="mcp") as screen:
        screen.shows(r"An MCP client starts this command; Ctrl-D ends it\.")
        screen.quit()
