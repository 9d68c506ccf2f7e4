"""The tools that this server offers, made from its settings.

In: settings. Out: a toolbox with the browser, python and the operator's MCP servers, each only where it can
be used; for what cannot, a sentence that says what to set or to install. Settings that are wrong are told
when this is made; what takes long (probing the sandbox, asking tool servers) waits for `ready`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings, SettingsError
from tools.tool import ToolUnavailable
from tools.toolbox import MARGIN, Offer, Toolbox

if TYPE_CHECKING:
    from tools.browser.backends.base import Backend
    from tools.mcp.client import McpTool
    from tools.python import PythonTool, Sandbox

_log = logging.getLogger(__name__)
_NO_BROWSER = (
    "The browser is off. Start with --browser local:DIR for a folder of documents, "
    "--browser searxng:URL, or --browser exa with EXA_API_KEY set."
)
_INSTALL = "Install the tools' packages: pip install --upgrade gpt-oss-server."
_NO_PYTHON = "The python tool is off. Start with --python auto."
# Of a tool server that was not there: seconds between two askings, and how long a request waits for one.
_ASK_AGAIN, _ASK_WAIT = 5.0, 2.0


@dataclass(slots=True)
class Toolset:
    """What is offered. `refusals` says for a namespace why it is not."""

    toolbox: Toolbox = field(default_factory=Toolbox)
    operators: dict[str, McpTool] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=lambda: {"browser": _NO_BROWSER, "python": _NO_PYTHON})
    python: PythonTool | None = None
    allow_private_hosts: bool = False  # for MCP servers that a request names
    mcp_timeout: float = 120.0  # likewise
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)

    def leave(self, closing: Coroutine[Any, Any, None]) -> None:
        """Closes what one request had of its own. Nobody waits for it: a server may take its time."""
        task = asyncio.get_running_loop().create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def left(self) -> None:
        """Whatever requests had of their own is closed."""
        while self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)

    async def close(self) -> None:
        await self.left()
        await self.toolbox.close()
        for server in self.operators.values():
            await server.close()


class ToolsetMaker:
    """Reads the settings at once, and makes the toolset once, when it is first waited for.

    A `backend` and a `sandbox` that are given take the place of those that the settings tell of.
    """

    def __init__(
        self, settings: Settings, *, backend: Backend | None = None, sandbox: Sandbox | None = None
    ) -> None:
        self._settings = settings
        self._sandbox = sandbox
        try:
            self._backend = backend or _backend(settings)
            self._servers = _operator_servers(settings)
        except ImportError as error:
            raise SettingsError(f"{error}. {_INSTALL}") from error
        except (ToolUnavailable, ValueError) as error:
            raise SettingsError(str(error)) from error
        self._making: asyncio.Task[Toolset] | None = None
        self._missing: list[
            str
        ] = []  # tool servers that were not there; a request that needs a tool asks again
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
            # Only who has it asked waits a moment: a server that hangs must not hold up everybody.
            await asyncio.wait({self._asking}, timeout=_ASK_WAIT)
        return toolset

    @property
    def made(self) -> Toolset | None:
        """The toolset, if it is there already: for who must not wait."""
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
        if self._backend is not None:
            from tools.browser import BrowserTool

            browser = BrowserTool(
                self._backend,
                allow_private_hosts=settings.allow_private_hosts,
                count_tokens=lambda text: len(load_encoding().encode(text)),
            )
            offers.append(Offer(browser, timeout=30.0 + MARGIN))
        await self._add_python(toolset, offers)
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

    async def _add_python(self, toolset: Toolset, offers: list[Offer]) -> None:
        settings = self._settings
        if settings.python == "off" and self._sandbox is None:
            return
        try:
            from tools.python import PythonTool, choose_sandbox

            sandbox = self._sandbox or await choose_sandbox(settings.python, image=settings.python_image)
        except ImportError as error:
            toolset.refusals["python"] = f"The python tool cannot be used here: {error}. {_INSTALL}"
            return
        except ToolUnavailable as error:
            toolset.refusals["python"] = f"The python tool cannot be used here. {error}"
            return
        if sandbox is not None:
            toolset.python = PythonTool(sandbox, timeout=settings.python_timeout)
            offers.append(Offer(toolset.python, timeout=settings.python_timeout + MARGIN))

    def _add_servers(self, toolset: Toolset, offers: list[Offer]) -> None:
        from tools.mcp.client import McpTool

        for server in self._servers:
            tool = McpTool(
                server.label, server.endpoint, server.credentials, timeout=self._settings.mcp_timeout
            )
            toolset.operators[server.label] = tool
            offers.append(Offer(tool, timeout=tool.timeout + MARGIN))

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


def _backend(settings: Settings) -> Backend | None:
    if settings.browser is None and not os.environ.get("EXA_API_KEY"):
        return None  # and nothing of the browser is imported
    from tools.browser.backends import default_backend, parse_backend

    return parse_backend(settings.browser or default_backend())


def _operator_servers(settings: Settings) -> tuple[OperatorServer, ...]:
    if not settings.mcp:
        return ()
    from tools.mcp.operator import parse_mcp_flags

    return parse_mcp_flags(settings.mcp)


if TYPE_CHECKING:
    from tools.mcp.operator import OperatorServer
