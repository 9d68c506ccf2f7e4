"""How to reach an MCP server: by streamable HTTP, then HTTP+SSE (first for a URL that ends in /sse)."""

import logging
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, CallToolResult, Implementation

from tools.addresses import Resolver, system_resolver
from tools.mcp.endpoints import Credentials, Endpoint, HttpEndpoint, StdioEndpoint
from tools.mcp.failures import causes
from tools.mcp.http import PinnedTransport

# At lower levels these loggers show whole messages, URLs with their queries, and sessions: confidential data
# of clients and servers; and the package's own logs each server that does not keep to the protocol with a
# traceback, which `connection` reports in a sentence. To read it, set their levels by name.
_LEVELS = {"mcp.client": logging.CRITICAL, "httpx2": logging.WARNING, "httpcore2": logging.WARNING}
for _verbose in map(logging.getLogger, _LEVELS):
    if _verbose.level == logging.NOTSET:
        _verbose.setLevel(_LEVELS[_verbose.name])

_CONNECT_SECONDS = 15.0
_SILENCE_SECONDS = 900.0  # the longest silence of an event stream, unless a call may last longer
_EVENT_BYTES = 16_000_000
_CLIENT_INFO = Implementation(name="gpt-oss-server", version="1")

# The statuses with which servers that support only the older HTTP+SSE refuse a POST.
_MAYBE_SSE = frozenset({400, 404, 405, 406, 410, 415, 501})

# The handshake of the protocol's first version is tried first, because only it has sessions, and tools (a
# kernel, a browser's cursors) have state. "auto" is for servers that support only the second version.
Attempt = tuple[Literal["http", "sse", "stdio"], Literal["legacy", "auto"]]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which addresses may be reached. Tests inject the `resolver`."""

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
        """Whether the last status may mean that the server does not support this transport."""
        return self.last_status in _MAYBE_SSE

    @property
    def _silence(self) -> float:
        return max(_SILENCE_SECONDS, self.longest_call)

    async def post_refused(self) -> None:
        """Returns when a message could not be delivered."""
        assert self._pinned is not None
        await self._pinned.post_refused.wait()

    def first_attempt(self) -> Attempt:
        if isinstance(self.endpoint, StdioEndpoint):
            return "stdio", "legacy"
        is_sse = urlsplit(self.endpoint.url).path.rstrip("/").endswith("/sse")
        return ("sse", "legacy") if is_sse else ("http", "legacy")

    def next_attempt(self, attempt: Attempt, error: BaseException) -> Attempt | None:
        """The next attempt, if the error means that the server supports something else."""
        codes = {cause.code for cause in causes(error) if isinstance(cause, MCPError)}
        if UNSUPPORTED_PROTOCOL_VERSION in codes and attempt[1] == "legacy":
            return attempt[0], "auto"
        if not self.is_turned_away or isinstance(self.endpoint, StdioEndpoint) or attempt[1] == "auto":
            return None
        other: Attempt = ("sse", "legacy") if attempt[0] == "http" else ("http", "legacy")
        return other if attempt == self.first_attempt() else None

    async def enter(self, stack: AsyncExitStack, attempt: Attempt) -> Client:
        """Connects. Raises anything that the `mcp` package and its transports raise, also in groups."""
        kind, mode = attempt
        streams: AbstractAsyncContextManager[Any]
        if isinstance(self.endpoint, StdioEndpoint):
            command = StdioServerParameters(
                command=self.endpoint.command,
                args=list(self.endpoint.arguments),
                encoding_error_handler="replace",
            )
            # Its errors go to this process's, because the operator should read them.
            streams = stdio_client(command, sys.__stderr__ or sys.stderr)
        elif kind == "sse":
            url, silence = self.endpoint.url, self._silence
            streams = sse_client(url, sse_read_timeout=silence, httpx_client_factory=self._http)
        else:
            url, http = self.endpoint.url, await stack.enter_async_context(self._http())
            streams = streamable_http_client(url, http_client=http, max_sse_event_size=_EVENT_BYTES)
        client = Client(streams, mode=mode, cache=None, client_info=_CLIENT_INFO)
        await stack.enter_async_context(client)
        client.session.validate_tool_result = _as_it_came  # type: ignore[method-assign]
        return client

    def _http(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """The factory that `sse_client` calls; this method decides everything that it would choose."""
        trusted = isinstance(self.endpoint, HttpEndpoint) and self.endpoint.trusted
        private = trusted or self.reach.allow_private
        self._pinned = PinnedTransport(allow_private=private, resolver=self.reach.resolver)
        return httpx2.AsyncClient(  # without the environment's proxies
            transport=self._pinned,
            # The limit on bytes is for uncompressed bodies.
            headers={"Accept-Encoding": "identity", **self.credentials.for_sending()},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=self._silence),
            trust_env=False,
            follow_redirects=False,
        )


async def _as_it_came(name: str, result: CallToolResult) -> None:
    """Replaces the package's check, which fetches the list again and drops a result that violates its schema:
    the call has been made in any case, and the model reads the result as text.
    """
