"""The tools that this server offers, made from its settings.

Takes settings. Returns a toolbox with the usable hosted tools and the operator's MCP servers, and for each
unusable tool a sentence that names the setting or package it needs. The constructor of the maker rejects
wrong settings; slow work (probing the sandbox, connecting to tool servers) waits for `ready`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.items.code_interpreter import conversation_of
from gpt_oss_server.items.hosted import HostedTool, Maker
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.settings import Settings, SettingsError
from tools.extras import how_to_install
from tools.tool import ToolUnavailable
from tools.toolbox import Offer, OnCall, Toolbox, offer_of

if TYPE_CHECKING:
    from tools.mcp.client import McpTool
    from tools.mcp.operator import OperatorServer

_log = logging.getLogger(__name__)
# For an unreachable tool server: seconds between two attempts, and how long a request waits for one.
_RETRY_AFTER, _RETRY_WAIT = 5.0, 2.0
_MOVABLE = frozenset({"browser", "python", "container"})  # what a tool server may have


@dataclass(slots=True)
class Toolset:
    """The tools on offer. `refusals` holds, by namespace, why a tool is not on offer."""

    toolbox: Toolbox = field(default_factory=Toolbox)
    operators: dict[str, McpTool] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)  # namespaces of hosted tools that run in this server
    # For MCP servers that a request names.
    allow_private_hosts: bool = False
    mcp_timeout: float = 120.0
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def conversation_of(self, container: str, namespace: str, caller: Caller) -> str:
        """The conversation of an open container; "" if there is none, or only that of another key's owner."""
        return conversation_of(container, self.toolbox.conversations(namespace, caller.owner or None))

    def refuse(self, name: str, why: str) -> None:
        self.refusals[name] = f"The {name} tool cannot be used here. {why}"

    def close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        """Closes a request's own tools in the background, as an MCP server may take long to close."""
        task = asyncio.get_running_loop().create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def wait_closed(self) -> None:
        """Waits until the tools of all ended requests are closed."""
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    async def close(self) -> None:
        await self.wait_closed()
        await self.toolbox.close()
        for server in self.operators.values():
            await server.close()


class ToolsetMaker:
    """Reads the settings immediately, and makes the toolset once, when a request first needs it."""

    def __init__(
        self, settings: Settings, kinds: Kinds | None = None, *, on_call: OnCall | None = None
    ) -> None:
        self.kinds = kinds or Kinds.of()
        self._settings = settings
        self._on_call = on_call
        try:
            makers = [(tool, self._maker(tool)) for tool in self.kinds.hosted.values()]
            self._servers = _operator_servers(settings)
            _check_tool_servers(settings)
        except ImportError as error:
            raise SettingsError(how_to_install(error)) from error
        except (ToolUnavailable, ValueError) as error:
            raise SettingsError(str(error)) from error
        self._makers = [(tool, make) for tool, make in makers if make is not None]
        self._making: asyncio.Task[Toolset] | None = None
        self._missing: list[str] = []  # tool servers that did not answer; requests retry them
        self._own: list[Offer] = []  # this server's own tools that are not on offer yet
        self._elsewhere: set[str] = set()  # namespaces that a tool server has
        self._retrying: asyncio.Task[None] | None = None
        self._retry_from = 0.0

    def _maker(self, tool: HostedTool) -> Maker | None:
        origin = self.kinds.origins.get(tool.namespace)
        try:
            return tool.maker(self._settings)
        except Exception as error:
            if origin is None:
                raise
            raise SettingsError(
                f"{origin} cannot make its tool {tool.namespace!r}: {type(error).__name__}: {error}."
            ) from error

    def start(self) -> None:
        """Begins in the background, so that the first request that needs a tool finds it ready."""
        if self._making is None:
            for name, origin in self.kinds.origins.items():
                _log.info("%s adds the tool %s.", origin, name)
            self._making = asyncio.get_running_loop().create_task(self._make())

    async def ready(self) -> Toolset:
        self.start()
        assert self._making is not None
        toolset = await asyncio.shield(self._making)  # a client's disconnect must not cancel it
        retries = self._retrying is not None and not self._retrying.done()
        if self._missing and not retries and time.monotonic() >= self._retry_from:
            self._retrying = asyncio.get_running_loop().create_task(self._retry_missing(toolset))
            # Only the request that starts the attempt waits: a hanging server must not delay the others.
            await asyncio.wait({self._retrying}, timeout=_RETRY_WAIT)
        return toolset

    @property
    def made(self) -> Toolset | None:
        """The toolset if it exists already, for callers that must not wait."""
        making = self._making
        finished = making is not None and making.done() and not making.cancelled()
        return making.result() if making is not None and finished and making.exception() is None else None

    async def wait_closed(self) -> None:
        """Waits for the tools of requests that ended after `close`."""
        if (made := self.made) is not None:
            await made.wait_closed()

    async def close(self) -> None:
        if self._making is not None:
            toolset = await self._making
            for offer in self._own:
                await offer.tool.close()
            if self._retrying is not None:
                self._retrying.cancel()
                await asyncio.wait({self._retrying})
            await toolset.close()

    async def _make(self) -> Toolset:
        settings = self._settings
        toolset = Toolset(
            refusals={name: tool.off for name, tool in self.kinds.hosted.items() if tool.off},
            allow_private_hosts=settings.allow_private_hosts,
            mcp_timeout=settings.mcp_timeout,
        )
        for tool, make in self._makers:
            await self._add_hosted(tool, make, toolset)
        offers: list[Offer] = []
        if self._servers or settings.tool_server:
            # On a thread, because the first import takes more than a second.
            await asyncio.to_thread(import_module, "tools.mcp.client")
            await asyncio.to_thread(import_module, "tools.mcp.external")
            self._add_servers(toolset, offers)
        toolset.toolbox = Toolbox(offers, on_call=self._on_call)
        self._missing = list(settings.tool_server)
        if self._missing:
            await self._connect_missing(
                toolset, "--tool-server: %s Requests that need a tool will try it again."
            )
            self._retry_from = time.monotonic() + _RETRY_AFTER
        await self._offer_own(toolset)
        return toolset

    async def _offer_own(self, toolset: Toolset) -> None:
        """Offers this server's own tools, but never one that the operator has moved to a tool server.

        While a tool server does not answer, it is unknown which of them it has.
        """
        waiting, self._own = self._own, []
        for offer in waiting:
            name = offer.tool.declaration.namespace
            if name in self._elsewhere:
                await offer.tool.close()
            elif self._missing and name in _MOVABLE:
                self._own.append(offer)
                toolset.refuse(
                    name,
                    f"A tool server may have it ({', '.join(self._missing)}), and does not answer. Start "
                    "that server, or this one without its --tool-server.",
                )
            else:
                await toolset.toolbox.take([offer])
                for declared in offer.declarations:
                    toolset.local.add(declared.namespace)
                    toolset.refusals.pop(declared.namespace, None)

    async def _add_hosted(self, tool: HostedTool, make: Maker, toolset: Toolset) -> None:
        name = tool.namespace
        try:
            offer = await make()
            if offer is not None and (declared := offer.tool.declaration.namespace) != name:
                raise ToolUnavailable(f"It declares itself as {declared!r}.")
        except ImportError as error:
            toolset.refuse(name, how_to_install(error))
        except ToolUnavailable as error:
            toolset.refuse(name, str(error))
        except Exception:
            if name not in self.kinds.origins:
                raise
            _log.exception("%s cannot make its tool %s", self.kinds.origins[name], name)
            toolset.refuse(name, "The server's log says why.")
        else:
            if offer is not None:
                self._own.append(offer)

    def _add_servers(self, toolset: Toolset, offers: list[Offer]) -> None:
        from tools.mcp.client import McpTool

        for server in self._servers:
            tool = McpTool(
                server.label, server.endpoint, server.credentials, timeout=self._settings.mcp_timeout
            )
            toolset.operators[server.label] = tool
            offers.append(offer_of(tool, tool.timeout))

    async def _retry_missing(self, toolset: Toolset) -> None:
        try:
            await self._connect_missing(toolset)
            await self._offer_own(toolset)
        except Exception:
            _log.exception("Connecting to a tool server again failed unexpectedly.")
        self._retry_from = time.monotonic() + _RETRY_AFTER

    async def _connect_missing(self, toolset: Toolset, log_failure: str | None = None) -> None:
        """Adds the tools of servers that answer now; logs `log_failure` for each that does not."""
        from tools.mcp.external import external_tools, tool_server
        from tools.mcp.failures import McpFailure

        for url in list(self._missing):
            try:
                tools = await external_tools(tool_server(url))
            except McpFailure as error:
                if log_failure is not None:
                    _log.error(log_failure, error)
                continue
            except ValueError as error:  # it answers, and has none of these tools
                _log.error("--tool-server: %s", error)
            else:
                await toolset.toolbox.take(Offer(tool) for tool in tools)
                self._elsewhere |= (names := {tool.declaration.namespace for tool in tools})
                for name in names:
                    toolset.refusals.pop(name, None)
                _log.info("The tool server %s is available now.", url)
            self._missing.remove(url)


def _check_tool_servers(settings: Settings) -> None:
    """Raises ValueError for an address that cannot be one."""
    if settings.tool_server:
        from tools.mcp.external import tool_server

        for url in settings.tool_server:
            tool_server(url)


def _operator_servers(settings: Settings) -> tuple[OperatorServer, ...]:
    if not settings.mcp:
        return ()
    from tools.mcp.operator import parse_mcp_flags

    return parse_mcp_flags(settings.mcp)
