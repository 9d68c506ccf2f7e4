"""Servers and a tool for tests of MCP."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.doubles.tools.echo_server import Seen, watched
from tests.doubles.tools.mcp_helpers import SECRETS, mcp_tool
from tools.mcp.client import McpTool
from tools.mcp.endpoints import Credentials


@pytest.fixture(scope="module", params=["http", "sse"])
def echoes(request: pytest.FixtureRequest) -> Iterator[tuple[str, Seen]]:
    """One server for all tests that leave it unchanged."""
    with watched(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def lone() -> Iterator[tuple[str, Seen]]:
    with watched() as server:
        yield server


@pytest.fixture
async def tool(echoes: tuple[str, Seen]) -> AsyncIterator[McpTool]:
    credentials = Credentials({"X-Secret": SECRETS[0]}, SECRETS[1])
    async with mcp_tool(echoes[0], credentials=credentials, timeout=10) as tool:
        yield tool
