"""Servers that are commands: started by a thread, and always ended with everything they started."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools import echo_server
from tests.doubles.tools.mcp_helpers import call, check_failure, failure, mcp_tool
from tests.doubles.waiting import until
from tools.mcp import client as client_module
from tools.mcp import connection as connection_module
from tools.mcp.endpoints import StdioEndpoint
from tools.mcp.failures import McpFailure
from tools.mcp.stdio import stdio_streams

ECHO = StdioEndpoint(sys.executable, (echo_server.__file__, "stdio"))
NO_COMMAND = StdioEndpoint("no-such-command-anywhere")
CLOSED = "closed the connection before it answered."
ODD = r"sys.stdout.buffer.write(b'\xff\n')"
ENDS = ("print('<html>')", ODD, "print('{\"jsonrpc\"', end='')", "sys.exit(3)")


def python(source: str) -> StdioEndpoint:
    return StdioEndpoint(sys.executable, ("-c", source))


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


async def test_a_command_is_restarted_when_it_died_and_never_in_the_event_loops_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []
    start = subprocess.Popen.__init__

    def noted(self: Any, *args: Any, **more: Any) -> None:
        threads.append(threading.current_thread().name)
        start(self, *args, **more)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    async with mcp_tool(ECHO, timeout=10) as tool:
        session = tool.open()
        assert (await call(session, "echo", text="hi 東京")).text == "hi 東京"
        assert "closed the connection" in await failure(session, "die")
        assert (await call(session, "echo", text="again")).text == "again"
    assert threads
    assert all(name.startswith("tool-starter") for name in threads)


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
    monkeypatch.setattr(connection_module, "_LEAVE_SECONDS", 0.5)
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
    async with stdio_streams(python(source)):
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    server, child = map(int, pids.read_text().split())
    await until(lambda: gone(server) and gone(child))


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
    async with asyncio.timeout(60), mcp_tool(ECHO) as tool:
        listing = asyncio.create_task(tool.list())
        await asyncio.sleep(0.05)
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    assert [pid for pid in pids if not gone(pid) and _is_child_that_echoes(pid)] == []


def _is_child_that_echoes(pid: int) -> bool:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"echo_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
