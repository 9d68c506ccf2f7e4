"""The tools that this server offers, made from its settings.

In: settings. Out: a toolbox with the hosted tools and the operator's MCP servers, each only where it can be
used; for a tool that cannot, a sentence that names what to set or to install. Wrong settings raise when the
maker is made; slow work (probing the sandbox, asking tool servers) waits for `ready`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpt_oss_server.hosted.table import HOSTED_TOOLS
from gpt_oss_server.hosted.tool import HostedTool, Maker
from gpt_oss_server.settings import Settings, SettingsError
from tools.tool import ToolUnavailable
from tools.toolbox import Offer, Toolbox, offer_of

if TYPE_CHECKING:
    from tools.mcp.client import McpTool
    from tools.mcp.operator import OperatorServer

_log = logging.getLogger(__name__)
_INSTALL = "Install the tools' packages: pip install --upgrade gpt-oss-server."
# For a tool server that was not there: seconds between two attempts, and how long a request waits for one.
_ASK_AGAIN, _ASK_WAIT = 5.0, 2.0


@dataclass(slots=True)
class Toolset:
    """The tools that are offered. `refusals` holds, by namespace, why a tool is not."""

    toolbox: Toolbox = field(default_factory=Toolbox)
    operators: dict[str, McpTool] = field(default_factory=dict)
    refusals: dict[str, str] = field(
        default_factory=lambda: {tool.namespace: tool.off for tool in HOSTED_TOOLS if tool.off}
    )
    local: set[str] = field(default_factory=set)  # namespaces of hosted tools that run in this server
    allow_private_hosts: bool = False  # for MCP servers that a request names
    mcp_timeout: float = 120.0  # likewise
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)

    def leave(self, closing: Coroutine[Any, Any, None]) -> None:
        """Closes a request's own tools. Nobody waits for it: a server may take its time."""
        task = asyncio.get_running_loop().create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def left(self) -> None:
        """Waits until all tools of requests are closed."""
        while self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)

    async def close(self) -> None:
        await self.left()
        await self.toolbox.close()
        for server in self.operators.values():
            await server.close()


class ToolsetMaker:
    """Reads the settings at once, and makes the toolset once, when a request first waits for it."""

    def __init__(self, settings: Settings, hosted: Sequence[HostedTool] = HOSTED_TOOLS) -> None:
        self._settings = settings
        try:
            makers = [(tool, tool.maker(settings)) for tool in hosted]
            self._servers = _operator_servers(settings)
        except ImportError as error:
            raise SettingsError(f"{error}. {_INSTALL}") from error
        except (ToolUnavailable, ValueError) as error:
            raise SettingsError(str(error)) from error
        self._makers = [(tool, make) for tool, make in makers if make is not None]
        self._making: asyncio.Task[Toolset] | None = None
        self._missing: list[str] = []  # tool servers that did not answer; a request asks them again
        self._asking: asyncio.Task[None] | None = None
        self._ask_from = 0.0

    def start(self) -> None:
        """Begin, without waiting: the first request that needs a tool should find it ready."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())

    async def ready(self) -> Toolset:
        self.start()
        assert self._making is not None
        toolset = await asyncio.shield(self._making)  # a client that leaves must not undo it
        asks = self._asking is not None and not self._asking.done()
        if self._missing and not asks and time.monotonic() >= self._ask_from:
            self._asking = asyncio.get_running_loop().create_task(self._ask_missing(toolset))
            # Only the request that starts the attempt waits: a server that hangs must not hold up others.
            await asyncio.wait({self._asking}, timeout=_ASK_WAIT)
        return toolset

    @property
    def made(self) -> Toolset | None:
        """The toolset, if it is made already; for callers that must not wait."""
        making = self._making
        finished = making is not None and making.done() and not making.cancelled()
        return making.result() if making is not None and finished and making.exception() is None else None

    async def left(self) -> None:
        """Once more after `close`, for requests that ended later still."""
        if (made := self.made) is not None:
            await made.left()

    async def close(self) -> None:
        if self._making is not None:
            toolset = await self._making
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.wait({self._asking})
            await toolset.close()

    async def _make(self) -> Toolset:
        settings = self._settings
        toolset = Toolset(allow_private_hosts=settings.allow_private_hosts, mcp_timeout=settings.mcp_timeout)
        offers: list[Offer] = []
        for tool, make in self._makers:
            await self._add_hosted(tool, make, toolset, offers)
        if self._servers:
            self._add_servers(toolset, offers)
        toolset.toolbox = Toolbox(offers)
        for offer in offers:
            toolset.refusals.pop(offer.tool.declaration.namespace, None)
        self._missing = list(settings.tool_server)
        if self._missing:
            await self._ask_each(toolset, "--tool-server: %s Requests that need a tool will ask it again.")
            self._ask_from = time.monotonic() + _ASK_AGAIN
        return toolset

    async def _add_hosted(self, tool: HostedTool, make: Maker, toolset: Toolset, offers: list[Offer]) -> None:
        name = tool.namespace
        try:
            offer = await make()
        except ImportError as error:
            toolset.refusals[name] = f"The {name} tool cannot be used here: {error}. {_INSTALL}"
            return
        except ToolUnavailable as error:
            toolset.refusals[name] = f"The {name} tool cannot be used here. {error}"
            return
        if offer is not None:
            toolset.local.add(name)
            offers.append(offer)

    def _add_servers(self, toolset: Toolset, offers: list[Offer]) -> None:
        from tools.mcp.client import McpTool

        for server in self._servers:
            tool = McpTool(
                server.label, server.endpoint, server.credentials, timeout=self._settings.mcp_timeout
            )
            toolset.operators[server.label] = tool
            offers.append(offer_of(tool, tool.timeout))

    async def _ask_missing(self, toolset: Toolset) -> None:
        try:
            await self._ask_each(toolset)
        except Exception:
            _log.exception("A tool server that was asked again broke what asks it.")
        self._ask_from = time.monotonic() + _ASK_AGAIN

    async def _ask_each(self, toolset: Toolset, absent: str | None = None) -> None:
        """Takes the tools of the servers that are there now; `absent` tells the log of one that is not."""
        from tools.mcp.external import external_tools, tool_server
        from tools.mcp.failures import McpFailure

        for url in list(self._missing):
            try:
                found = await external_tools(tool_server(url))
            except McpFailure as error:
                if absent is not None:
                    _log.error(absent, error)
                continue
            except ValueError as error:
                _log.error("--tool-server: %s", error)  # the rest is served
            else:
                await toolset.toolbox.take(Offer(tool) for tool in found)
                for tool in found:
                    toolset.refusals.pop(tool.declaration.namespace, None)
                _log.info("The tool server %s is there now.", url)
            self._missing.remove(url)


def _operator_servers(settings: Settings) -> tuple[OperatorServer, ...]:
    if not settings.mcp:
        return ()
    from tools.mcp.operator import parse_mcp_flags

    return parse_mcp_flags(settings.mcp)
