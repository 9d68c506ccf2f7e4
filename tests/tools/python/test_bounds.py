"""Bounds of boxes: what the watchdog measures and decides, and the memory that sessions hold."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools.calling import call, failure, output_of
from tests.tools.python.conftest import SMALL, MakeTool, bubblewrap
from tools.python import NoMemoryLeft, PythonSession, PythonTool
from tools.python.sandboxes.bounds import cgroups, host_memory, usage, watchdog
from tools.python.sandboxes.bounds.cgroups import Groups, make_groups
from tools.python.sandboxes.bounds.host_memory import HostMemory
from tools.python.sandboxes.bounds.limits import MIB
from tools.python.sandboxes.bounds.usage import can_bound, highest_number
from tools.python.sandboxes.bounds.watchdog import INTERVAL, Watched
from tools.python.shared import FOR_A_KERNEL
from tools.tool import Client, ToolCall, ToolOutput

HOLDER = "kept = bytearray(b'x') * (64 << 20); import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_a_process_that_hides_shares_counts_in_full(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users cannot read the map of a process whose program they cannot read."""
    assert usage.proportional((process,)) > 64 * MIB
    text = usage._text
    monkeypatch.setattr(usage, "_text", lambda name: "" if "smaps" in name else text(name))
    assert usage.proportional((process,)) > 64 * MIB


def _counts_sockets_and_contents() -> bool:
    before, queued = usage.sockets(os.getpid()), usage.queued(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as door:
        one = socket.create_connection(door.getsockname())
        other, _ = door.accept()
        with one, other:
            one.sendall(b"x" * 50_000)
            return usage.sockets(os.getpid()) >= before + 3 and usage.queued(os.getpid()) >= queued + 50_000


def test_sockets_and_the_contents_of_connections_are_counted() -> None:
    """Both counts are of the whole network namespace: other processes may close sockets during an attempt."""
    assert any(_counts_sockets_and_contents() for _ in range(50))


@pytest.mark.parametrize(
    ("total", "floor"), [(1024, 256), (8 * 1024, 512), (24 * 1024, 1536), (1024 * 1024, 2048)]
)
def test_the_floor_grows_with_the_machine(total: int, floor: int) -> None:
    assert HostMemory(total * MIB, floor * MIB).floor == floor * MIB
    assert not HostMemory(total * MIB, floor * MIB).short
    assert HostMemory(total * MIB, floor * MIB - 1).short


def test_the_memory_of_a_container_is_its_group_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text(f"{512 * MIB}\n")
    (tmp_path / "memory.current").write_text(f"{400 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {100 * MIB}\n")
    monkeypatch.setattr(host_memory, "own_group", lambda controller: tmp_path)
    assert host_memory.host_memory() == HostMemory(512 * MIB, 212 * MIB)
    (tmp_path / "memory.max").write_text("max\n")
    memory = host_memory.host_memory()
    assert memory is not None
    assert f"MemTotal: {memory.total // 1024} kB" in " ".join(Path("/proc/meminfo").read_text().split())


def short_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the machine be short of memory until one box has been ended for that."""
    enough, short = HostMemory(8192 * MIB, 4096 * MIB), HostMemory(8192 * MIB, 1)
    ended: list[str] = []
    end = Watched.end

    def noted(box: Watched, verdict: str) -> None:
        ended.append(verdict)
        end(box, verdict)

    monkeypatch.setattr(Watched, "end", noted)
    monkeypatch.setattr(watchdog, "host_memory", lambda: enough if ended else short)


async def test_a_machine_short_of_memory_ends_the_box_that_holds_the_most(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make_tool(timeout=40.0)
    small, large = tool.open(), tool.open()
    assert await output_of(small, "x = 1; x") == "1"
    assert await output_of(large, "kept = bytearray(b'x') * (100 << 20); 1") == "1"
    await asyncio.sleep(1.0)  # until the watchdog has looked at both
    short_once(monkeypatch)
    assert "the machine ran short of memory" in await failure(large, "import time; time.sleep(20)")
    assert await output_of(small, "x") == "1"


async def test_too_little_memory_starts_no_box(make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_tool(timeout=40.0).open()
    with monkeypatch.context() as patch:
        patch.setattr("tools.python.sandboxes.sandbox.host_memory", lambda: HostMemory(8192 * MIB, 100 * MIB))
        assert "short of memory; try again later" in await failure(session, "1")
    assert await output_of(session, "1") == "1"


def unified(root: Path, own: str, shared: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of unified control groups in which `shared` groups limit those below them."""
    (root / own).mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    for name, controllers in shared.items():
        (root / name / "cgroup.subtree_control").write_text(controllers)
    monkeypatch.setattr(cgroups, "_ROOT", root)
    monkeypatch.setattr(cgroups, "own_group", lambda controller: root / own)


def test_a_group_is_made_where_memory_can_be_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {"": "cpu memory pids\n", "user/app.slice": "memory pids\n", "user": "cpu\n"}
    unified(tmp_path, "user/app.slice/run.scope", shared, monkeypatch)
    groups = make_groups(SMALL)
    [folder] = groups.folders
    assert folder.parent == tmp_path / "user/app.slice"
    assert groups.limit_memory
    assert (folder / "memory.max").read_text() == str(SMALL.memory + SMALL.files_size)
    assert (folder / "pids.max").read_text() == str(SMALL.processes + 4)


def test_without_such_a_group_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unified(tmp_path, "a/b", {"": "cpu\n"}, monkeypatch)
    assert not make_groups(SMALL).limit_memory


@pytest.mark.parametrize("groups", ["none", "those that nobody can enter"])
def test_without_control_groups_the_operator_learns_that_limits_are_weaker(
    groups: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "memory.max").touch()
    (tmp_path / "cgroup.procs").mkdir()  # cannot be written to
    made = Groups(() if groups == "none" else (tmp_path,))

    async def unremoved(self: Groups) -> None:
        del self

    monkeypatch.setattr("tools.python.sandboxes.bubblewrap.make_groups", lambda limits: made)
    monkeypatch.setattr(Groups, "remove", unremoved)
    with caplog.at_level(logging.WARNING):
        bubblewrap()
    assert "cannot limit the memory of its boxes by control groups" in caplog.text
    caplog.clear()
    monkeypatch.undo()
    own = make_groups(SMALL)
    asyncio.run(own.remove())
    if own.limit_memory:
        bubblewrap()
        assert not caplog.text


SETTING = Path("/proc/sys/kernel/pid_max")


def of_the_host() -> str:
    return SETTING.read_text()


@pytest.mark.parametrize("release", ["6.13.9", "5.15.0-91-generic", "4.18.0", "unknown", ""])
def test_the_setting_of_a_whole_host_is_never_touched(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", str)
    assert not can_bound(release)
    assert can_bound("6.14.0-rc1")
    assert can_bound("7.0")


@pytest.mark.skipif(
    not can_bound() or not os.access(SETTING, os.W_OK),
    reason="process numbers are bounded by root, since Linux 6.14, where /proc/sys can be written",
)
async def test_a_box_without_control_groups_has_few_numbers_and_never_runs_out_of_them(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.python.sandboxes.bubblewrap.make_groups", lambda limits: Groups(()))
    before = of_the_host()
    tool = make_tool(timeout=60.0)
    session = tool.open()
    shown = await output_of(session, f"print(open('{SETTING}').read())")
    assert int(shown) == highest_number(SMALL.processes)
    # First more processes than there are numbers, one after another; then some simultaneously, as before.
    source = """
        import os, subprocess, time
        for _ in range(500):
            child = os.posix_spawn("/bin/true", ["true"], {})
            os.waitpid(child, 0)
        print(len([subprocess.Popen(["sleep", "0.1"]) for _ in range(5)]))
    """
    assert await output_of(session, source) == "5"
    await tool.close()
    assert of_the_host() == before


HOLD = "kept = bytearray(b'x') * (80 << 20); 1"
LIMIT = FOR_A_KERNEL + 120 * MIB
GROW = """
import time
kept = []
for _ in range(60):
    kept.append(bytearray(b'x') * (4 << 20))
    time.sleep(0.1)
'unbounded'
"""


class Owned:
    def __init__(self, session: PythonSession, name: str, limits: Mapping[str, int]) -> None:
        self._session, self._name, self._limits = session, name, limits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    @property
    def _client(self) -> Client:
        return Client(self._name, memory=self._limits.get(self._name))

    async def run(self, call: ToolCall) -> ToolOutput:
        return await self._session.run(replace(call, client=self._client))

    async def write(self, path: str, content: bytes) -> None:
        await self._session.write(path, content, self._client)


class Owners:
    def __init__(self, make_tool: MakeTool, *, memory: int | None = None, **limits: int) -> None:
        self.limits = limits
        self._tool: PythonTool = make_tool(timeout=60.0, memory=memory)

    def open(self, owner: str) -> Any:
        return Owned(self._tool.open(), owner, self.limits)


BOUNDS = pytest.mark.parametrize("bound", ["all", "one owner"])


@BOUNDS
async def test_idle_kernels_end_when_others_need_their_memory(make_tool: MakeTool, bound: str) -> None:
    owners = Owners(make_tool, memory=LIMIT) if bound == "all" else Owners(make_tool, limited=LIMIT)
    other = owners.open("other")
    if bound == "one owner":
        assert await output_of(other, HOLD) == "1"
    first, second = owners.open("limited"), owners.open("limited")
    await first.write("a.txt", b"kept")
    assert await output_of(first, HOLD) == "1"
    await asyncio.sleep(1.0)  # until the watchdog has looked at it
    assert first.held > 80 * MIB
    assert await output_of(second, "1") == "1"
    assert first.held < MIB  # only the file
    assert bound == "all" or other.held > 80 * MIB
    output = await call(first, "open('a.txt').read()")
    assert "other conversations needed its memory" in output.text
    assert "'kept'" in output.text


@BOUNDS
async def test_files_that_ended_kernels_left_count_too(make_tool: MakeTool, bound: str) -> None:
    limit = FOR_A_KERNEL + 12 * MIB
    owners = Owners(make_tool, memory=limit) if bound == "all" else Owners(make_tool, limited=limit)
    if bound == "one owner":
        other = owners.open("other")
        for at in range(3):
            await other.write(f"{at}.bin", b"x" * (5 * MIB))
    first, second = owners.open("limited"), owners.open("limited")
    for at in range(3):
        await first.write(f"{at}.bin", b"x" * (5 * MIB))
    await first.retire("enough")
    assert 15 * MIB <= first.held < 16 * MIB
    with pytest.raises(NoMemoryLeft, match="delete files or containers"):
        await second.write("a.txt", b"x")
    whose = "of this client" if bound == "one owner" else "together"
    assert f"{whose} hold 108 MiB of memory, the most that" in await failure(second, "1")
    if bound == "all":
        await first.remove("0.bin")
    else:
        owners.limits["limited"] = LIMIT  # of the same key, after a change of the file
    assert await output_of(second, "1") == "1"


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
async def test_files_that_come_faster_than_memory_is_checked_stay_within_the_limit(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    owners = Owners(make_tool, limited=LIMIT)
    session = owners.open("limited")
    await session.write("first.bin", b"x")
    monkeypatch.setattr(Watched, "due", lambda self: False)
    await asyncio.sleep(2 * INTERVAL)  # a check that has begun ends
    owners.limits["limited"] = session.held + 12 * MIB
    writes = [session.write(f"{at}.bin", b"x" * (5 * MIB)) for at in range(4)]
    if together:
        written = await asyncio.gather(*writes, return_exceptions=True)
    else:
        written = [(await asyncio.gather(write, return_exceptions=True))[0] for write in writes]
    assert [type(result) for result in written] == [type(None)] * 2 + [NoMemoryLeft] * 2
    assert [file.path for file in await session.files()] == ["0.bin", "1.bin", "first.bin"]


async def test_a_kernel_counts_while_it_starts(make_tool: MakeTool) -> None:
    owners = Owners(make_tool, limited=FOR_A_KERNEL + 40 * MIB)
    first, second = owners.open("limited"), owners.open("limited")
    outputs = await asyncio.gather(call(first, "1"), call(second, "1"))
    assert [output.failed for output in outputs] == [False, True]
    assert "conversations of this client hold 136 MiB of memory" in outputs[1].text


async def test_kernels_that_grow_together_beyond_the_limit_are_ended(make_tool: MakeTool) -> None:
    owners = Owners(make_tool, limited=220 * MIB)
    other = owners.open("other")
    assert await output_of(other, HOLD) == "1"
    first, second = owners.open("limited"), owners.open("limited")
    outputs = await asyncio.gather(call(first, GROW), call(second, GROW))
    killed = [output.text for output in outputs if output.failed]
    assert len(killed) in (1, 2), outputs
    why = "the conversations of this client held more than 220 MiB of memory, the most that they may"
    assert all(f"The kernel was killed: {why}" in text for text in killed)
    assert await output_of(other, "len(kept) >> 20") == "80"


async def test_one_kernel_that_grows_takes_the_place_of_idle_ones(make_tool: MakeTool) -> None:
    owners = Owners(make_tool, limited=240 * MIB)
    idle, growing = owners.open("limited"), owners.open("limited")
    assert await output_of(idle, "kept = bytearray(b'x') * (20 << 20); 1") == "1"
    grow = "kept = bytearray(b'x') * (140 << 20); import time; time.sleep(2); 1"
    assert await output_of(growing, grow) == "1"
    assert "other conversations needed its memory" in (await call(idle, "1")).text
