"""Real sandboxes with small limits, and sessions in them."""

import asyncio
import json
import os
import platform
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tools.python import PythonSession, PythonTool, Sandbox, SandboxLimits, choose_sandbox
from tools.python.sandboxes.bounds.limits import MIB
from tools.python.sandboxes.bubblewrap import Bubblewrap
from tools.python.sandboxes.docker import Docker
from tools.python.sandboxes.seccomp import DENIED, MACHINES
from tools.tool import ToolUnavailable

_FILES = {"data_size": 20 * MIB, "data_files": 2000, "temp_size": 20 * MIB, "shared_size": 4 * MIB}
_OPEN = {"file_size": 16 * MIB, "open_files": 128, "descriptors": 2048}
SMALL = SandboxLimits(memory=256 * MIB, processes=40, cpu_seconds=60, **_FILES, **_OPEN)


def bubblewrap(limits: SandboxLimits = SMALL) -> Bubblewrap:
    """The sandbox, which has been tested. Skips without it, except in CI, which must have it."""
    try:
        sandbox = asyncio.run(choose_sandbox("bubblewrap", limits=limits, interpreter=sys.executable))
    except ToolUnavailable as refusal:
        _do_without_bubblewrap(str(refusal))
    assert isinstance(sandbox, Bubblewrap)
    return sandbox


def needs_bubblewrap() -> None:
    """The same for a test whose server starts the sandbox: one is tested for all of them."""
    if (refusal := _refusal_of_bubblewrap()) is not None:
        _do_without_bubblewrap(refusal)


def sandbox_of_servers() -> str:
    """A setting of the python tool for a server that tests share, some of which need a sandbox."""
    return "off" if _refusal_of_bubblewrap() else "bubblewrap"


@cache
def _refusal_of_bubblewrap() -> str | None:
    with ThreadPoolExecutor(1) as thread:  # a browser's tests have an event loop in theirs
        tested = thread.submit(lambda: asyncio.run(choose_sandbox("bubblewrap", limits=SMALL)))
    if isinstance(refusal := tested.exception(), ToolUnavailable):
        return str(refusal)
    tested.result()
    return None


def _do_without_bubblewrap(refusal: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the sandbox tests: {refusal}")
    pytest.skip(refusal)


def docker(limits: SandboxLimits = SMALL) -> Docker:
    image = os.environ.get("GPT_OSS_SERVER_PYTHON_IMAGE")
    try:
        sandbox = asyncio.run(choose_sandbox("docker", limits=limits, image=image))
    except ToolUnavailable as refusal:
        pytest.skip(str(refusal))
    assert isinstance(sandbox, Docker)
    return sandbox


_SERVER = """
import asyncio, json, os, signal, sys
from tools.python import PythonTool, choose_sandbox
from tools.python.sandboxes.bounds.usage import measure
from tools.python.sandboxes.docker import owner_mark
from tools.tool import ToolCall

async def main():
    image = os.environ.get("GPT_OSS_SERVER_PYTHON_IMAGE")
    tool = PythonTool(await choose_sandbox(sys.argv[1], image=image))
    await asyncio.gather(*(tool.open().run(ToolCall("", source)) for source in sys.argv[2:]))
    print(json.dumps([measure(os.getpid(), 100_000).ids, owner_mark()]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def killed_server(sandbox: str, *sources: str) -> tuple[int, set[int], str]:
    """A server that was killed after these calls: its pid, those of its descendants, its containers' mark."""
    words = (sys.executable, "-c", _SERVER, sandbox, *sources)
    server = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await server.communicate()
    assert server.returncode == -signal.SIGKILL
    left, mark = json.loads(printed)
    return server.pid, set(left) - {server.pid}, mark


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return bubblewrap()


MakeTool = Callable[..., PythonTool]


@pytest.fixture
async def make_tool(sandbox: Sandbox) -> AsyncIterator[MakeTool]:
    tools: list[PythonTool] = []

    def make(**settings: Any) -> PythonTool:
        tools.append(PythonTool(sandbox, **settings))
        return tools[-1]

    yield make
    for tool in tools:
        await tool.close()


@pytest.fixture
async def session(make_tool: MakeTool) -> PythonSession:
    """A session with a limit for calls that end even on a slow machine; other tests create their own tool."""
    return make_tool(timeout=60.0, grace=1.0).open()


def facts_of_the_host() -> dict[str, Any]:
    """What attempts compare with: nothing in a box may show it. Its canaries are not set."""
    column = 1 if platform.machine() == "x86_64" else 2
    calls = {name: DENIED[name][column] for name in ("init_module", "shmget", "vmsplice")}
    return {
        **dict.fromkeys(("canary", "file", "folder", "abstract", "socket"), "none"),
        "port": 9,
        "project": __file__,
        "path": os.environ["PATH"],
        "working_folder": os.getcwd(),
        "hostname": socket.gethostname(),
        "server": os.getpid(),
        "clone": MACHINES[platform.machine()][1],
        **calls,
        "load": Path("/proc/loadavg").read_text().split()[0],
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024,
    }


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The host's facts and canaries that nothing in a box may reach."""
    canary, abstract = f"canary-{secrets.token_hex(8)}", f"gpt-oss-{secrets.token_hex(8)}"
    monkeypatch.setenv("OPENAI_API_KEY", canary)
    (tmp_path / "secret").write_text(canary)
    path = f"/tmp/gpt-oss-{secrets.token_hex(4)}.sock"
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for name in (path, "\0" + abstract):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name)
            server.listen()
        own = {"canary": canary, "file": str(tmp_path / "secret"), "folder": str(tmp_path)}
        own |= {"port": tcp.getsockname()[1], "abstract": abstract, "socket": path}
        yield facts_of_the_host() | own
    os.unlink(path)
