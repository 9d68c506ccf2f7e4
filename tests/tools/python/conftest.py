"""A real bubblewrap sandbox with small limits, and sessions in it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tools.python import Limits, PythonSession, PythonTool, Sandbox, choose_sandbox
from tools.python.bubblewrap import Bubblewrap
from tools.python.sandbox import MIB
from tools.tool import ToolUnavailable

SMALL = Limits(
    memory=256 * MIB,
    processes=40,
    cpu_seconds=60,
    file_size=16 * MIB,
    open_files=128,
    data_size=20 * MIB,
    data_files=2000,
    temp_size=20 * MIB,
    shared_size=4 * MIB,
)


def bubblewrap(limits: Limits = SMALL) -> Bubblewrap:
    """The sandbox; skips where there is none, except in CI, which must have it."""
    try:
        sandbox = asyncio.run(choose_sandbox("bubblewrap", limits=limits, interpreter=sys.executable))
    except ToolUnavailable as refusal:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the sandbox tests: {refusal}")
        pytest.skip(str(refusal))
    assert isinstance(sandbox, Bubblewrap)
    return sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    return bubblewrap()


MakeTool = Callable[..., PythonTool]


@pytest.fixture
async def make_tool(sandbox: Sandbox) -> AsyncIterator[MakeTool]:
    """Tools with settings of the test's; closed after it."""
    made: list[PythonTool] = []

    def make(**settings: Any) -> PythonTool:
        made.append(PythonTool(sandbox, **settings))
        return made[-1]

    yield make
    for tool in made:
        await tool.close()


@pytest.fixture
async def session(make_tool: MakeTool) -> PythonSession:
    return make_tool(timeout=10.0, grace=1.0).open()
