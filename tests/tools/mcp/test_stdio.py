"""Servers that are commands: started by a thread, and always ended with everything they started."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools import echo_server
from tools.mcp import client as client_module
from tools.mcp import connection as connection_module
from tools.mcp.client import McpTool
from tools.mcp.endpoints import StdioEndpoint
from tools.mcp.failures import McpFailure
from tools.mcp.stdio import stdio_streams
from tools.tool import ToolCall

pytestmark = pytest.mark.anyio
ECHO = StdioEndpoint(sys.executable, (echo_server.__file__, "stdio"))


def python(source: str) -> StdioEndpoint:
    return StdioEndpoint(sys.executable, ("-c", source))


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which processes are started."""
    import subprocess

    seen: list[str] = []
    original = subprocess.Popen.__init__

    def noted(self: Any, *args: Any, **more: Any) -> None:
        seen.append(threading.current_thread().name)
        original(self, *args, **more)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    return seen


async def test_the_event_loop_s_thread_starts_no_process(forks: list[str]) -> None:
    tool = McpTool("echoes", ECHO)
    session = tool.open()
    try:
        output = await session.run(ToolCall("echo", '{"text": "hi 東京"}'))
        assert output.text == "hi 東京"
    finally:
        await session.close()
        await tool.close()
    assert forks
    assert all(name.startswith("tool-starter") for name in forks)


async def test_a_command_that_does_not_exist_is_reported() -> None:
    tool = McpTool("echoes", StdioEndpoint("no-such-command-here"))
    with pytest.raises(McpFailure, match="echoes"):
        await tool.list()
    await tool.close()


async def test_a_command_that_ends_immediately_is_reported() -> None:
    tool = McpTool("echoes", python("raise SystemExit(3)"))
    with pytest.raises(McpFailure):
        await asyncio.wait_for(tool.list(), 20)
    await tool.close()


@pytest.mark.parametrize(
    "source",
    [
        "import time; print('x' * 10**6, flush=True); time.sleep(60)",
        "import sys; [print('no json', flush=True) for _ in range(10**6)]",
        "import os, sys; os.close(0); import time; time.sleep(60)",
    ],
    ids=["a long line", "babble", "deaf"],
)
async def test_a_command_that_does_not_speak_mcp_ends_with_a_failure(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LISTING_SECONDS", 2.0)
    monkeypatch.setattr(connection_module, "_LEAVE_SECONDS", 0.5)
    tool = McpTool("echoes", python(source))
    with pytest.raises(McpFailure):
        await asyncio.wait_for(tool.list(), 30)
    await asyncio.wait_for(tool.close(), 30)


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
    async with stdio_streams(python(source)):
        for _ in range(500):
            if pids.exists() and len(pids.read_text().split()) == 2:
                break
            await asyncio.sleep(0.02)
    server, child = map(int, pids.read_text().split())
    for _ in range(100):
        if gone(server) and gone(child):
            break
        await asyncio.sleep(0.02)
    assert gone(server)
    assert gone(child)


async def test_no_descriptor_stays_open_however_it_ends() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def once(endpoint: StdioEndpoint) -> None:
        tool = McpTool("echoes", endpoint)
        try:
            await tool.list()
        except McpFailure:
            pass
        finally:
            await tool.close()

    await once(ECHO)
    before = open_files()
    for endpoint in (ECHO, python("raise SystemExit"), StdioEndpoint("no-such-command-here")) * 2:
        await once(endpoint)
    await asyncio.sleep(0.05)
    assert open_files() <= before


async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    tool = McpTool("echoes", ECHO)
    listing = asyncio.create_task(tool.list())
    await asyncio.sleep(0.05)
    listing.cancel()
    await asyncio.gather(listing, return_exceptions=True)
    await asyncio.wait_for(tool.close(), 30)
    mine = [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit() and not gone(int(pid)) and _is_child_that_echoes(int(pid))
    ]
    assert mine == []


def _is_child_that_echoes(pid: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"echo_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
