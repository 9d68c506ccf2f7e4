"""All sessions together, and those of one owner, hold no more memory than they may."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.tools.calling import call, output_of
from tests.tools.python.conftest import MakeTool
from tools.python import NoMemoryLeft, PythonSession, PythonTool
from tools.python.sandboxes.bounds.limits import MIB
from tools.python.sandboxes.bounds.watchdog import INTERVAL, Watched
from tools.python.shared import FOR_A_KERNEL
from tools.tool import Client, ToolCall, ToolOutput

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
    """A session that works for one client, which may hold as much as `limits` has for it."""

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
    refused = await call(second, "1")
    assert refused.failed
    whose = "of this client" if bound == "one owner" else "together"
    assert f"{whose} hold 108 MiB of memory, the most that" in refused.text
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
    """Each is well within the limits of a kernel; only their sum is not."""
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


async def test_a_single_kernel_cannot_exceed_the_limit_of_its_owner(make_tool: MakeTool) -> None:
    """Its box has the smaller limit from the start, which a control group enforces where there are any."""
    owners = Owners(make_tool, limited=150 * MIB)
    output = await call(owners.open("limited"), "kept = bytearray(b'x') * (180 << 20); 1")
    assert output.failed
    assert "150 MiB of memory" in output.text
