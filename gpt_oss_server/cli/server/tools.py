"""Single tools of a server, for the commands that check or serve one: as the server itself makes them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from tools.mcp.operator import OperatorServer
    from tools.tool import Tool

_log = logging.getLogger(__name__)
_CHOSEN_SANDBOXES = ("bubblewrap", "docker", "unsafe-local")
_SECONDS = 20.0  # for a tool server's first answer; one that a package manager installs first takes longer


async def hosted_tool(namespace: str, settings: Settings) -> Tool | None:
    """None if the settings leave it off. Raises ImportError, ValueError or ToolUnavailable."""
    from gpt_oss_server.items.table import Kinds

    make = Kinds.of().hosted[namespace].maker(settings)
    offer = None if make is None else await make()
    return None if offer is None else offer.tool


async def count_tools(server: OperatorServer, seconds: float) -> int:
    """The number of an MCP server's tools. Raises McpFailure if it does not answer in time."""
    from tools.mcp.client import McpTool

    tool = McpTool(server.label, server.endpoint, server.credentials, timeout=seconds)
    try:
        return len((await tool.list()).tools)
    finally:
        await tool.close()


def check_tools(settings: Settings) -> None:
    """Raises CommandLineError for a chosen sandbox or an MCP server's command that cannot work."""
    from tools.tool import ToolUnavailable

    # Not for `auto`, with which a server without any sandbox serves everything else.
    if settings.python in _CHOSEN_SANDBOXES:
        try:
            asyncio.run(hosted_tool("python", settings))
        except ToolUnavailable as error:
            problem = f"--python {settings.python} cannot be used here. {error}"
            raise CommandLineError(f"{problem} Or start with --python off.") from error
    if settings.mcp:
        asyncio.run(_check_servers(settings))


async def _check_servers(settings: Settings) -> None:
    from tools.mcp.operator import parse_mcp_flags

    await asyncio.gather(*map(_check_server, parse_mcp_flags(settings.mcp)))


async def _check_server(server: OperatorServer) -> None:
    """A command that fails is a mistake; a URL may belong to a server that starts later."""
    from tools.mcp.endpoints import StdioEndpoint
    from tools.mcp.failures import McpFailure

    try:
        await asyncio.wait_for(count_tools(server, 2 * _SECONDS), _SECONDS)
    except McpFailure as error:
        if isinstance(server.endpoint, StdioEndpoint) and error.lost:
            raise CommandLineError(f"--mcp {server.label}: {error}") from error
        _log.warning("--mcp %s: %s Requests that need it will try again.", server.label, error)
    except TimeoutError:
        problem = "--mcp %s: no answer in %g s. Requests that need it wait for it."
        _log.warning(problem, server.label, _SECONDS)
