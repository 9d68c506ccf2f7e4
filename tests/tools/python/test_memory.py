"""All sessions together hold no more memory than they may."""

from __future__ import annotations

import asyncio

import pytest

from tests.doubles.tools.calling import call, output_of
from tests.tools.python.conftest import MakeTool
from tools.python import NoMemoryLeft
from tools.python.memory import FOR_A_KERNEL
from tools.python.sandboxes.bounds.limits import MIB

HOLD = "kept = bytearray(b'x') * (80 << 20); 1"


async def test_idle_kernels_end_when_others_need_their_memory(make_tool: MakeTool) -> None:
    tool = make_tool(timeout=40.0, memory=FOR_A_KERNEL + 120 * MIB)
    first, second = tool.open(), tool.open()
    await first.write("a.txt", b"kept")
    assert await output_of(first, HOLD) == "1"
    await asyncio.sleep(1.0)  # until the watchdog has looked at it
    assert first.held > 80 * MIB
    assert await output_of(second, "1") == "1"
    assert first.held < MIB  # only the file
    output = await call(first, "open('a.txt').read()")
    assert "other conversations needed its memory" in output.text
    assert "'kept'" in output.text


async def test_files_that_ended_kernels_left_count_too(make_tool: MakeTool) -> None:
    tool = make_tool(timeout=40.0, memory=FOR_A_KERNEL + 12 * MIB)
    first, second = tool.open(), tool.open()
    for at in range(3):
        await first.write(f"{at}.bin", b"x" * (5 * MIB))
    await first.retire("enough")
    assert 15 * MIB <= first.held < 16 * MIB
    with pytest.raises(NoMemoryLeft, match="delete files or containers"):
        await second.write("a.txt", b"x")
    refused = await call(second, "1")
    assert refused.failed
    assert "hold 108 MiB of memory, the most that python may use here" in refused.text
    await first.remove("0.bin")
    assert await output_of(second, "1") == "1"
