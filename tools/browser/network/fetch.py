"""The safe fetcher: fetches pages of the public web from addresses that the model or a page chose.

It checks every address that the name resolves to, and connects to a checked one, so that a name that resolves
differently a moment later gains nothing; so too for every redirect. It sends no cookies, uses no proxies or
credentials from the environment, and limits time, size and decompression.
"""

import asyncio
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

import httpx

from tools.addresses import AddressRefused, Resolver, is_literal, is_public, resolve_allowed, system_resolver
from tools.browser.network.client import Lazy
from tools.browser.network.urls import read_url
from tools.browser.pages.document import PageBody, PageError

Permits = Callable[[str], bool]
"""Whether the request's domain filter permits a URL."""

MAX_REDIRECTS: Final = 5
_MAX_ADDRESSES_TRIED: Final = 3
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = {
    "User-Agent": "Mozilla/5.0 (compatible; gpt-oss-server)",
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


class Fetcher:
    """Shared by all conversations, whose state it does not hold.

    `resolver` and `transport` serve tests and special networks. The transport receives requests whose URL
    holds a checked IP address; the name is in the Host header and in the extension `sni_hostname`.
    """

    def __init__(
        self,
        *,
        allow_private_hosts: bool = False,
        timeout: float = 20.0,
        max_bytes: int = 8_000_000,
        resolver: Resolver = system_resolver,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._allow_private_hosts = allow_private_hosts
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._resolver = resolver
        self._transport = Lazy(lambda: transport or _transport(), lambda used: used.aclose())

    def check(self, url: str) -> httpx.URL:
        """Checks an address without resolving it and returns its one spelling. Raises `PageError`."""
        checked = read_url(url)
        literal = is_literal(checked.host)
        if literal and not self._allow_private_hosts and not is_public(checked.host):
            raise PageError("This address is not on the public Internet and is not opened.")
        return checked

    async def get(self, url: str, permits: Permits = lambda _: True) -> PageBody:
        """Fetches `url`. `permits` must hold for it and for every redirect. Raises `PageError`."""
        with self._reasons("The page"):
            async with asyncio.timeout(self._timeout):
                return await self._follow(self.check(url), permits)

    async def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> int:
        """Sends `content` and returns the answer's status. Follows no redirect. Raises `PageError`."""
        with self._reasons("The answer"):
            async with asyncio.timeout(self._timeout):
                response = await self._send(self.check(url), "POST", headers, content)
                await response.aclose()
                return response.status_code

    async def close(self) -> None:
        await self._transport.close()

    @contextmanager
    def _reasons(self, what: str) -> Iterator[None]:
        """Turns what may go wrong on the way into a `PageError`."""
        try:
            yield
        except TimeoutError as error:
            raise PageError(f"{what} did not arrive within {self._timeout:g} seconds.") from error
        except (httpx.TransportError, ssl.SSLError, OSError) as error:
            raise PageError(f"{what} could not be fetched: {_reason(error)}.") from error

    async def _follow(self, url: httpx.URL, permits: Permits) -> PageBody:
        for _ in range(MAX_REDIRECTS + 1):
            if not permits(str(url)):
                raise PageError(f"{url.host} is not among the domains that this request allows.")
            response = await self._send(url)
            try:
                target = response.headers.get("location")
                if response.status_code not in _REDIRECTS or not target:
                    return await self._read(url, response)
            finally:
                await response.aclose()
            try:
                joined = url.join(target)
            except (httpx.InvalidURL, ValueError, UnicodeError) as error:
                raise PageError("The page redirects to an address that is not valid.") from error
            url = self.check(str(joined))
        raise PageError(f"The page redirects more than {MAX_REDIRECTS} times.")

    async def _send(
        self,
        url: httpx.URL,
        method: str = "GET",
        headers: Mapping[str, str] = _HEADERS,
        content: bytes | None = None,
    ) -> httpx.Response:
        """Connects to a checked address; the request and TLS use the name."""
        port = url.port or (443 if url.scheme == "https" else 80)
        host = url.raw_host.decode("ascii")
        addresses = await self._addresses(host, port)
        transport = await self._transport.get()
        headers = {**headers, "Host": url.netloc.decode("ascii")}
        extensions = {"sni_hostname": host, "timeout": httpx.Timeout(self._timeout).as_dict()}
        refusal: httpx.TransportError | None = None
        for address in addresses[:_MAX_ADDRESSES_TRIED]:
            at = url.copy_with(host=address)
            request = httpx.Request(method, at, headers=headers, content=content, extensions=extensions)
            try:
                return await transport.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                refusal = error
        raise refusal or PageError(f"The host {host!r} has no address.")

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if is_literal(host):  # already checked with its URL
            return [host]
        try:
            return await resolve_allowed(
                host, port, resolver=self._resolver, allow_private=self._allow_private_hosts
            )
        except AddressRefused as error:
            raise PageError(str(error)) from error

    async def _read(self, url: httpx.URL, response: httpx.Response) -> PageBody:
        if response.status_code != 200:
            status = f"{response.status_code} {httpx.codes.get_reason_phrase(response.status_code)}"
            raise PageError(f"The server answered {status.strip()}.")
        inflate = _inflater(response.headers.get("content-encoding", ""))
        body = bytearray()
        received = 0
        try:
            async for chunk in response.aiter_raw():
                received += len(chunk)
                body += inflate(chunk, self._max_bytes + 1 - len(body))
                if max(len(body), received) > self._max_bytes:
                    break
        except zlib.error as error:
            raise PageError("The page's compression is damaged.") from error
        content_type = response.headers.get("content-type", "")
        cut = max(len(body), received) > self._max_bytes
        return PageBody(str(url), content_type, bytes(body[: self._max_bytes]), cut)


_authorities = cache(httpx.create_ssl_context)  # to read them takes tens of milliseconds


def _transport() -> httpx.AsyncBaseTransport:
    # No connection is kept: the transport cannot distinguish two names at one address, but TLS must.
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
    return httpx.AsyncHTTPTransport(verify=_authorities(), trust_env=False, limits=limits)


Inflate = Callable[[bytes, int], bytes]
"""(chunk, most) → the decompressed chunk, of which it returns `most` bytes at most."""


def _inflater(encoding: str) -> Inflate:
    match encoding.strip().lower():
        case "" | "identity":
            return lambda chunk, most: chunk[:most]
        case "gzip" | "x-gzip":
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress
        case "deflate":
            return _Deflate()
        case other:
            raise PageError(f"The page is compressed in a way that was not requested: {other[:40]}.")


class _Deflate:
    """zlib's format, which the standard requires, or the raw one that some servers send."""

    def __init__(self) -> None:
        self._inflate: Inflate | None = None

    def __call__(self, chunk: bytes, most: int) -> bytes:
        if self._inflate is None:
            wrapped = bool(chunk) and chunk[0] & 0x0F == zlib.DEFLATED and chunk[0] >> 4 <= 7
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS).decompress
        return self._inflate(chunk, most)


def _reason(error: Exception) -> str:
    """The reason in words, without the addresses that system messages contain."""
    match error:
        case httpx.ConnectError() if isinstance(error.__cause__, ssl.SSLError) or "SSL" in str(error):
            return "its TLS certificate or handshake was refused"
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return "no connection to its server"
        case httpx.TimeoutException():
            return "its server went silent"
        case _:
            return f"its server broke off ({type(error).__name__})"
