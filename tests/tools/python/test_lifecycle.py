"""What remains after a close, and how many sessions can run in parallel."""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools.calling import call, descriptors, lives, output_of, processes
from tests.doubles.waiting import until
from tests.tools.python.conftest import bubblewrap, killed_server
from tools.python import PythonSession, PythonTool, Sandbox
from tools.python.sandboxes.launch import spawn
from tools.python.sandboxes.sandbox import SandboxError

FORKS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
"""


def _groups(owner: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/gpt-oss-python-{owner}-*"))


async def test_after_close_no_process_descriptor_thread_group_or_folder_is_left(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = processes()
    # A place of its own, because this test must not count what other processes create in the common one.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    await _used_and_closed(sandbox)  # once, to load what stays loaded
    opened, groups = descriptors(), _groups(os.getpid())
    await _used_and_closed(sandbox)
    assert processes() == before
    assert descriptors() == opened
    assert _groups(os.getpid()) == groups
    assert os.listdir(tmp_path) == []
    await asyncio.sleep(0.3)
    assert "python-tool-watchdog" not in {thread.name for thread in threading.enumerate()}


async def _used_and_closed(sandbox: Sandbox) -> None:
    tool = PythonTool(sandbox)
    idle, dead, busy = tool.open(), tool.open(), tool.open()
    await call(idle, FORKS)
    await call(dead, FORKS)
    await call(dead, "os._exit(1)")
    running = asyncio.create_task(call(busy, FORKS + "time.sleep(600)"))
    await asyncio.sleep(1.0)
    began = time.monotonic()
    await tool.close()
    assert time.monotonic() - began < 60
    output = await running
    assert output.failed


async def test_a_start_does_not_block_the_loop(
    session: PythonSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
        threads.add(threading.current_thread())
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(10.0), "the loop stood still"
        return popen(*arguments, **settings)

    loop, popen, threads = asyncio.get_running_loop(), subprocess.Popen, set[threading.Thread]()
    monkeypatch.setattr(subprocess, "Popen", slow)
    assert await output_of(session, "1 + 1") == "2"
    (thread,) = threads
    assert thread.is_alive()  # bubblewrap dies with the thread that started it


async def test_a_start_that_is_cancelled_ends_its_process_before_its_descriptors_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
        begun.set()
        time.sleep(0.3)
        os.fstat(settings["pass_fds"][0])
        started.append(popen(*arguments, **settings))
        return started[-1]

    popen, begun, started = subprocess.Popen, threading.Event(), list[subprocess.Popen[bytes]]()
    monkeypatch.setattr(subprocess, "Popen", slow)
    passed = os.open(tmp_path, os.O_RDONLY)
    starting = asyncio.create_task(spawn(["/bin/sleep", "600"], send=b"", env={}, pass_fds=[passed]))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        starting.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.close(passed)
    assert [process.returncode for process in started] == [-9]


async def test_a_program_that_cannot_be_started_is_reported() -> None:
    opened = descriptors()
    with pytest.raises(SandboxError, match="/nonexistent: No such file"):
        await spawn(["/nonexistent"], send=b"", env={})
    assert descriptors() == opened


async def test_a_killed_server_leaves_neither_boxes_nor_their_programs_nor_groups(sandbox: Sandbox) -> None:
    burst = ["import subprocess; subprocess.Popen(['sleep', '600'])"] * 4
    killed, left, _ = await killed_server("bubblewrap", *burst)
    assert len(left) >= 16  # each box has two processes of bubblewrap, the kernel, and its program
    await until(lambda: not any(map(lives, left)))
    for _ in range(10):  # a probe removes what the killed server could not, once its processes are gone
        await asyncio.to_thread(bubblewrap)
        if not _groups(killed):
            break
        await asyncio.sleep(0.2)
    assert not _groups(killed)
