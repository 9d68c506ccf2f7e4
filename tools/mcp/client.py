"""The tools of an MCP server as one Tool: `label.tool` for the model, `tools/call` for the server.

Outputs' `details` are the data of an mcp_call item: `{"server_label", "name", "arguments", "output", "error",
"images"}` (`output` or `error` is None). None of it contains credentials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcp.client import Client
from mcp_types import CallToolResult

from tools.mcp.calls import read_arguments, read_result
from tools.mcp.connection import McpConnection
from tools.mcp.endpoints import Credentials, Endpoint
from tools.mcp.failures import McpFailure
from tools.mcp.listing import ListedTool, McpListing, fetch_listing
from tools.mcp.names import safe_namespace
from tools.mcp.permissions import Permissions
from tools.mcp.transports import Dialler, Reach
from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput

_LISTING_SECONDS = 60.0
_LISTING_IS_FRESH = 300.0


class _Permitted:
    """What `permissions` allow of a server. `_server` is the server's tool, perhaps this one itself."""

    label: str
    permissions: Permissions
    _server: McpTool

    @property
    def listing(self) -> McpListing | None:
        """The permitted part of the server's listing; None before `list`."""
        listing = self._server.fetched
        return listing.only(self.permissions) if listing is not None else None

    @property
    def declaration(self) -> Declaration:
        """The declaration; before `list` it has no functions, and the model does not need it."""
        listing = self.listing
        functions = tuple(
            Function(tool.word, tool.description, tool.input_schema)
            for tool in (listing.tools if listing is not None else ())
        )
        about = self._server.description or (listing.instructions if listing is not None else None)
        return Declaration(self._server.namespace, about, functions)

    def needs_approval(self, tool_name: str) -> bool:
        """Takes a tool's name or its word. One that was not listed is judged by its name alone."""
        listing = self._server.fetched
        listed = (listing.by_word(tool_name) or listing.by_name(tool_name)) if listing is not None else None
        if listed is None:
            return self.permissions.approval.needed(tool_name)
        return self.permissions.approval.needed(listed.name, listed.annotations)

    async def list(self) -> McpListing:
        """Fetches the server's tools, unless the listing is fresh. Raises McpFailure."""
        return (await self._server.fetch(_LISTING_IS_FRESH)).only(self.permissions)

    async def full_listing(self) -> McpListing:
        """The listing for looking up a call's name. Fetches it only if there is none, however old it is."""
        return await self._server.fetch(float("inf"))


class McpTool(_Permitted):
    """One server: a client's, for its request alone, or an operator's for all, `Narrowed` for each."""

    def __init__(
        self,
        label: str,
        endpoint: Endpoint,
        credentials: Credentials | None = None,
        *,
        permissions: Permissions | None = None,
        timeout: float = 120.0,
        description: str | None = None,
        reach: Reach | None = None,
        listing: McpListing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = self
        self.label = label
        self.namespace = safe_namespace(label)
        self.permissions = permissions or Permissions()
        self.timeout = timeout
        self.description = description
        self._endpoint = endpoint
        self._credentials = credentials or Credentials()
        self._reach = reach or Reach()
        self._clock = clock
        self.fetched = listing  # all of it, whatever is permitted
        self._fetched_at = clock() if listing is not None else float("-inf")
        self._spare: McpConnection | None = None
        self._connections: set[McpConnection] = set()
        self._closed = False

    async def fetch(self, freshness: float) -> McpListing:
        """The whole listing, fetched again if it is older than `freshness`, in seconds. Raises McpFailure."""
        if self.fetched is None or self._clock() - self._fetched_at > freshness:
            listing = await self._list_tools()
            self.fetched, self._fetched_at = listing.redacted(self._credentials.redact), self._clock()
        return self.fetched

    async def _list_tools(self) -> McpListing:
        """Uses the connection that an earlier listing left, if it is usable; otherwise a new one."""
        seconds = min(self.timeout, _LISTING_SECONDS)
        if self._spare is not None and self._spare.usable:
            try:
                return await self._spare.request(fetch_listing, seconds)
            except McpFailure as failure:
                if not failure.lost:
                    raise
        self._spare = self.connect()
        return await self._spare.request(fetch_listing, seconds)

    def open(self) -> Session:
        return McpSession(self)

    async def close(self) -> None:
        self._closed = True
        self._spare = None
        for connection in list(self._connections):
            await self.disconnect(connection)

    def connect(self) -> McpConnection:
        """The connection that the listing left, or a new one."""
        if self._closed:
            raise McpFailure(f"The connection to the MCP server {self.label!r} was closed.", lost=True)
        spare, self._spare = self._spare, None
        self._connections = {connection for connection in self._connections if not connection.ended}
        if spare is not None and spare.usable:
            return spare
        dialler = Dialler(self._endpoint, self._credentials, self._reach, self.timeout)
        connection = McpConnection(self.label, dialler)
        self._connections.add(connection)
        return connection

    async def disconnect(self, connection: McpConnection) -> None:
        self._connections.discard(connection)
        await connection.close()

    def redact(self, text: str) -> str:
        return self._credentials.redact(text)


class Narrowed(_Permitted):
    """One request's permissions on an operator's server. `options` accompany each of its calls."""

    def __init__(self, tool: McpTool, permissions: Permissions) -> None:
        self._server = tool
        self.label = tool.label
        self.permissions = permissions
        self.options: Mapping[str, Any] = {"permissions": permissions}


class McpSession:
    """One conversation's connection to the server, opened at its first call and again after a loss."""

    def __init__(self, tool: McpTool) -> None:
        self._tool = tool
        self._connection: McpConnection | None = None

    async def run(self, call: ToolCall) -> ToolOutput:
        name = call.function
        try:
            listed = self._permitted(await self._tool.full_listing(), call)
            name = listed.name
            arguments = read_arguments(call.arguments)
            answer = await self._call(name, arguments)
        except McpFailure as failure:
            answer = ToolOutput(str(failure), failed=True)
        return self._output(call, name, answer)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._tool.disconnect(connection)

    def _permitted(self, listing: McpListing, call: ToolCall) -> ListedTool:
        allowed = listing.only(self._tool.permissions)
        narrower = call.options.get("permissions")
        if isinstance(narrower, Permissions):
            allowed = allowed.only(narrower)
        listed = allowed.by_word(call.function)
        if listed is None:
            words = ", ".join(f"{self._tool.namespace}.{tool.word}" for tool in allowed.tools) or "none"
            mistake = f"{self._tool.namespace} has no function {call.function[:80]!r}."
            raise McpFailure(f"{mistake} Its functions are: {words}.", lost=False)
        return listed

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        try:
            return read_result(await self._request(name, arguments))
        except McpFailure as failure:
            if not failure.gone:
                raise
        return read_result(await self._request(name, arguments))

    async def _request(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        if self._connection is None or not self._connection.usable:
            await self.close()
            self._connection = self._tool.connect()
        send = partial(Client.call_tool, name=name, arguments=arguments)
        return await self._connection.request(send, self._tool.timeout)

    def _output(self, call: ToolCall, name: str, answer: ToolOutput) -> ToolOutput:
        text = self._tool.redact(answer.text)
        details: dict[str, Any] = {
            "server_label": self._tool.label,
            "name": name,
            "arguments": call.arguments,
            "output": None if answer.failed else text,
            "error": text if answer.failed else None,
        }
        return ToolOutput(text, answer.failed, {**details, **answer.details})
