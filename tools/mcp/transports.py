"""How an MCP server is reached: which transport and which age of the protocol it speaks.

In: an endpoint and credentials. Out: a connected client of the `mcp` package, entered on the caller's exit
stack. Streamable HTTP is tried first and HTTP+SSE where a server turns that away (a URL that ends in /sse
the other way round). Knows nothing of tools or calls.
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, CallToolResult, Implementation

from tools.addresses import Resolver, system_resolver
from tools.mcp.endpoints import Credentials, Endpoint, HttpEndpoint, StdioEndpoint
from tools.mcp.failures import causes
from tools.mcp.http import PinnedTransport, http_client
from tools.mcp.stdio import stdio_streams

# The lower levels of these loggers show whole messages, URLs with their queries and sessions: what a client
# or a server says in confidence. Whoever wants to read that sets their levels by name.
for _talkative in ("mcp.client", "httpx2", "httpcore2"):
    if logging.getLogger(_talkative).level == logging.NOTSET:
        logging.getLogger(_talkative).setLevel(logging.WARNING)

_SILENCE_SECONDS = 900.0  # an event stream may be quiet for so long, or for as long as a call may last
_EVENT_BYTES = 16_000_000
_OURSELVES = Implementation(name="gpt-oss-server", version="1")

# Statuses with which servers that speak only the older HTTP+SSE turn a POST away.
_MAYBE_SSE = frozenset({400, 404, 405, 406, 410, 415, 501})

# The handshake of the protocol's first age comes first: only there are sessions, and tools (a kernel, a
# browser's cursors) have state. "auto" is for servers that know nothing but the second age.
Way = tuple[Literal["http", "sse", "stdio"], Literal["legacy", "auto"]]


@dataclass(frozen=True, slots=True)
class Reach:
    """What an address may be. `resolver` is injected by tests."""

    allow_private: bool = False
    resolver: Resolver = system_resolver


@dataclass(slots=True)
class Dialler:
    endpoint: Endpoint
    credentials: Credentials
    reach: Reach
    longest_call: float = 0.0  # seconds
    _pinned: PinnedTransport | None = field(default=None, init=False)

    @property
    def last_status(self) -> int | None:
        return self._pinned.last_status if self._pinned is not None else None

    @property
    def is_turned_away(self) -> bool:
        """Whether the last answer may mean that the server does not speak what was tried."""
        return self.last_status in _MAYBE_SSE

    @property
    def _silence(self) -> float:
        return max(_SILENCE_SECONDS, self.longest_call)

    async def post_refused(self) -> None:
        """Returns when a message could not be delivered."""
        assert self._pinned is not None
        await self._pinned.post_refused.wait()

    def first_way(self) -> Way:
        if isinstance(self.endpoint, StdioEndpoint):
            return "stdio", "legacy"
        is_sse = urlsplit(self.endpoint.url).path.rstrip("/").endswith("/sse")
        return ("sse", "legacy") if is_sse else ("http", "legacy")

    def way_after(self, way: Way, error: BaseException) -> Way | None:
        """What to try next, where the error means that the server speaks something else."""
        codes = {each.code for each in causes(error) if isinstance(each, MCPError)}
        if UNSUPPORTED_PROTOCOL_VERSION in codes and way[1] == "legacy":
            return way[0], "auto"
        if not self.is_turned_away or isinstance(self.endpoint, StdioEndpoint) or way[1] == "auto":
            return None
        other: Way = ("sse", "legacy") if way[0] == "http" else ("http", "legacy")
        return other if way == self.first_way() else None

    async def enter(self, stack: AsyncExitStack, way: Way) -> Client:
        """Raises whatever the `mcp` package and its transports raise, in groups too."""
        kind, mode = way
        if isinstance(self.endpoint, StdioEndpoint):
            return await self._entered(stack, stdio_streams(self.endpoint), mode)
        if kind == "sse":
            streams = sse_client(
                self.endpoint.url, sse_read_timeout=self._silence, httpx_client_factory=self._http
            )
            return await self._entered(stack, streams, mode)
        http = await stack.enter_async_context(self._http())
        over_http = streamable_http_client(
            self.endpoint.url, http_client=http, max_sse_event_size=_EVENT_BYTES
        )
        return await self._entered(stack, over_http, mode)

    async def _entered(
        self, stack: AsyncExitStack, streams: AbstractAsyncContextManager[Any], mode: str
    ) -> Client:
        client = Client(streams, mode=mode, cache=None, client_info=_OURSELVES)
        await stack.enter_async_context(client)
        client.session.validate_tool_result = _as_it_came  # type: ignore[method-assign]
        return client

    def _http(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """The shape of a factory that `sse_client` calls; everything it would choose is chosen here."""
        trusted = isinstance(self.endpoint, HttpEndpoint) and self.endpoint.trusted
        self._pinned = PinnedTransport(
            allow_private=trusted or self.reach.allow_private, resolver=self.reach.resolver
        )
        return http_client(self._pinned, self.credentials.for_sending(), self._silence)


async def _as_it_came(name: str, result: CallToolResult) -> None:
    """The package's own check asks for the list again, and drops an answer that is not of its schema.

    The call was made all the same, and the model reads the answer as text: it is not the one to be lost.
    """
