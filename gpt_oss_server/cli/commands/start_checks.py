"""Checks before a model is loaded: settings that would otherwise fail at somebody's first request.

Takes the settings. Raises a sentence about a context, a sandbox, a tool server's command, a key, a name or
an endpoint that cannot work; logs what may work later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpt_oss_server.cli.terminal.errors import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from tools.mcp.operator import OperatorServer

_log = logging.getLogger(__name__)
_CHOSEN_SANDBOXES = ("bubblewrap", "docker", "unsafe-local")
_SECONDS = 20.0  # for a tool server's first answer; one that a package manager installs first takes longer


def check_start(settings: Settings) -> None:
    from gpt_oss_server.observe.telemetry.telemetry import check_telemetry
    from gpt_oss_server.runs.served import keyring_of
    from gpt_oss_server.stores.sealing import server_sealer
    from gpt_oss_server.toolset.offered import ToolsetMaker

    check_context(settings.context, settings)
    if settings.needs_keys:
        keyring_of(settings)
    if settings.sealing_key_file is not None:
        server_sealer(settings.sealing_key_file)
    check_telemetry(settings)
    ToolsetMaker(settings)  # raises for backends and servers that are named wrongly
    if settings.python in _CHOSEN_SANDBOXES or settings.mcp:
        asyncio.run(_check_tools(settings))


def check_context(tokens: int | None, settings: Settings) -> None:
    """Raises `CommandLineError` for a context in which not even the shortest conversation fits.

    None is the model's own, which is known once the model is loaded.
    """
    if tokens is None:
        return
    from gpt_oss_server.turns.plan import least_context

    least = least_context(settings)
    if tokens >= least:
        return
    message = "the system message" if settings.identity is None else "the system message with its --identity"
    raise CommandLineError(
        f"A context of {tokens} tokens is too short to answer anything: {message}, a question of one word "
        f"and its answer take {least}. Give --context {least} or more, and thousands for conversations; "
        "without --context, it is the model's own."
    )


async def _check_tools(settings: Settings) -> None:
    if settings.python in _CHOSEN_SANDBOXES:
        await _check_sandbox(settings)
    if settings.mcp:
        from tools.mcp.operator import parse_mcp_flags

        await asyncio.gather(*(_check_server(server) for server in parse_mcp_flags(settings.mcp)))


async def _check_sandbox(settings: Settings) -> None:
    """Not for `auto`, with which a server without any sandbox serves everything else."""
    from tools.python import choose_sandbox
    from tools.tool import ToolUnavailable

    try:
        await choose_sandbox(settings.python, image=settings.python_image)
    except ToolUnavailable as error:
        raise CommandLineError(
            f"--python {settings.python} cannot be used here. {error} Or start with --python off."
        ) from error


async def _check_server(server: OperatorServer) -> None:
    """A command that fails is a mistake; a URL may belong to a server that starts later."""
    from tools.mcp.client import McpTool
    from tools.mcp.endpoints import StdioEndpoint
    from tools.mcp.failures import McpFailure

    tool = McpTool(server.label, server.endpoint, server.credentials, timeout=2 * _SECONDS)
    try:
        await asyncio.wait_for(tool.list(), _SECONDS)
    except McpFailure as error:
        if isinstance(server.endpoint, StdioEndpoint) and error.lost:
            raise CommandLineError(f"--mcp {server.label}: {error}") from error
        _log.warning("--mcp %s: %s Requests that need it will try again.", server.label, error)
    except TimeoutError:
        _log.warning(
            "--mcp %s: no answer in %g s. Requests that need it wait for it.", server.label, _SECONDS
        )
    finally:
        await tool.close()
