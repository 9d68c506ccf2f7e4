"""HTTP for MCP: every request and every redirect connects to exactly the addresses that were checked, and
bodies are limited. It must not know MCP's messages.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import httpx2

from tools.addresses import Resolver, resolve_allowed, system_resolver

_ADDRESSES_TRIED = 4
MAX_BODY_BYTES = 32_000_000


class AnswerTooLarge(Exception):
    """A body exceeds the limit."""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Connects to a host's checked address; the Host header and the TLS handshake use its name."""

    def __init__(self, *, allow_private: bool, resolver: Resolver = system_resolver) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self.last_status: int | None = None
        self.post_refused = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol("Only http and https are supported for MCP servers.")
        port = url.port or (443 if url.scheme == "https" else 80)
        resolver, private = self._resolver, self._allow_private
        addresses = await resolve_allowed(url.host, port, resolver=resolver, allow_private=private)
        response = await self._first_that_answers(request, addresses[:_ADDRESSES_TRIED])
        self.last_status = response.status_code
        if request.method == "POST" and response.status_code >= 400:
            self.post_refused.set()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise AnswerTooLarge("compressed, although the request forbids it")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Capped(cast(httpx2.AsyncByteStream, response.stream))
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _first_that_answers(self, request: httpx2.Request, addresses: list[str]) -> httpx2.Response:
        for address in addresses[:-1]:
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nothing was sent, so another address of the host may answer
        return await self._inner.handle_async_request(_pinned(request, addresses[-1]))


class _Capped(httpx2.AsyncByteStream):
    """A body that raises an error beyond the limit. Event streams have a limit of their own."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in self._inner:
            taken += len(chunk)
            if taken > MAX_BODY_BYTES:
                raise AnswerTooLarge
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx2.Request, address: str) -> httpx2.Request:
    """The same request to an address. The original keeps its name, by which redirects are judged."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address.partition("%")[0]),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
