"""HTTP as remote engines need it: a JSON body out, a JSON answer or a stream of events in.

Takes an address and the operator's options. Each call has a connection of its own, which `aclose` of a stream
closes: engines take that as the cancellation. It must not know any engine's wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from inference.engine import EngineBusy, EngineFailed, InferenceError, ModelNotFound
from inference.options import EngineOptions

RETRY_AFTER = 5.0  # seconds, where the engine names none
_LONGEST = 500  # characters of an engine's own message
_LONGEST_ERROR = 65_536
_BUSY = (429, 503)
DONE = b"[DONE]"
Json = Any
_PORTS = {"http": 80, "https": 443}
_MOST = 262_144  # bytes that wait to be read before the other side is slowed down


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    tls: bool
    path: str  # before every path of the engine: "" or "/somewhere"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def parse_addresses(urls: str, kind: str) -> tuple[Address, ...]:
    """One address, or several with commas between them. Raises `ModelNotFound`."""
    addresses = tuple(parse_address(url.strip(), kind) for url in urls.split(","))
    if len(set(addresses)) < len(addresses):
        raise ModelNotFound(f"{urls} names one address twice.")
    return addresses


def parse_address(url: str, kind: str) -> Address:
    """Raises `ModelNotFound`. A trailing `/v1`, as clients' base URLs have it, is not part of the address."""
    url = url.removeprefix(f"{kind}:") if "://" in url else url  # the kind may stand before each address
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ModelNotFound(f"{url!r} is no URL: {error}. Write {kind}:http://127.0.0.1:8080") from error
    if parts.scheme not in _PORTS or not host:
        raise ModelNotFound(f"{url!r} is no URL of an engine. Write {kind}:http://127.0.0.1:8080")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ModelNotFound(
            f"{kind}:URL takes a host, a port and a path only. A key belongs into --engine-key."
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(host, port or _PORTS[parts.scheme], parts.scheme == "https", path)


class Caller:
    def __init__(self, address: Address, options: EngineOptions) -> None:
        self._address, self._options = address, options
        self.url = address.url
        self._tls = ssl.create_default_context() if address.tls else None
        self._open: set[Received] = set()

    def move(self, address: Address) -> None:
        """The server listens elsewhere now."""
        self._address, self.url = address, address.url

    def abort(self) -> None:
        """Breaks all calls that run."""
        for received in list(self._open):
            received.abort()

    async def reach(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """The answer's body, whatever it is. With a body of its own it is a POST. Raises as `get` does."""
        async with aclosing(self._bodies("GET" if body is None else "POST", path, body, {})) as pieces:
            return b"".join([piece async for piece in pieces])

    async def get(self, path: str) -> Json:
        return self._parsed(await self.reach(path))

    async def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._parsed(await self.reach(path, body))

    async def events(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[Json], None]:
        """The JSON of the server-sent events that arrived together, until `[DONE]` or the end of the answer.

        Only the reader knows whether the last event was one that may be the last. Raises the error of an
        event that is one, after those before it.
        """
        rest = b""
        async with aclosing(self._bodies("POST", path, body, headers or {})) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                events, failure, is_over = self._parsed_events(lines)
                if events:
                    yield events
                if failure is not None:
                    raise failure
                if is_over:
                    return

    def _parsed_events(self, lines: Sequence[bytes]) -> tuple[list[Json], InferenceError | None, bool]:
        """The events, the failure that follows them, and whether the stream is over."""
        events: list[Json] = []
        for line in lines:
            if not line.startswith(b"data:") or not (data := line[5:].strip()):
                continue
            if data == DONE:
                return events, None, True
            try:
                event = self._parsed(data)
            except InferenceError as error:
                return events, error, True
            if "error" in event:
                return events, refusal(self.url, event["error"].get("code", 500), event, "", None), True
            events.append(event)
        return events, None, False

    async def _bodies(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """The body's pieces. Raises `Refused` or `RemoteBusy` for an error's status, `Unreachable`."""
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        answer.status_of = parser.get_status_code
        async with aclosing(self._received(self._head(method, path, body, headers))) as pieces:
            async for piece in pieces:
                try:
                    parser.feed_data(piece)
                except httptools.HttpParserError as error:
                    raise Unreachable(f"{self.url} does not answer with HTTP: {error}.") from error
                if answer.begun and answer.status >= 400:
                    if answer.complete or answer.size > _LONGEST_ERROR:
                        raise self._refusal(answer)
                    continue
                if content := answer.take():
                    yield content
                if answer.complete:
                    return
        if answer.begun and answer.status >= 400:
            raise self._refusal(answer)
        # Only then can a body that was cut off be distinguished from a whole one.
        states_length = answer.headers.keys() & {"content-length", "transfer-encoding"}
        if not answer.begun or states_length:
            raise self._broken("the connection was closed in the middle of an answer")

    async def _received(self, request: bytes) -> AsyncGenerator[bytes, None]:
        received = await self._connected()
        self._open.add(received)
        try:
            received.transport.write(request)
            while piece := await received.piece():
                yield piece
        except TimeoutError as error:
            raise self._broken(f"not a byte for {self._options.engine_idle_timeout:g} s") from error
        except OSError as error:
            raise self._broken(f"the connection broke ({_reason(error)})") from error
        finally:
            self._open.discard(received)
            received.abort()

    async def _connected(self) -> Received:
        address, options = self._address, self._options
        try:
            async with asyncio.timeout(options.engine_connect_timeout):
                _, received = await asyncio.get_running_loop().create_connection(
                    lambda: Received(options.engine_idle_timeout), address.host, address.port, ssl=self._tls
                )
        except TimeoutError as error:
            raise self._broken(f"no connection within {options.engine_connect_timeout:g} s") from error
        except OSError as error:
            raise self._broken(f"no connection ({_reason(error)})") from error
        return received

    def _head(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> bytes:
        address = self._address
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        host = address.url.partition("://")[2].removesuffix(address.path)
        # llama-server promises to keep connections and then closes them.
        fields = {"host": host, "accept": "text/event-stream, application/json", "connection": "close"}
        fields |= headers
        if body is not None:
            fields |= {"content-type": "application/json", "content-length": str(len(content))}
        if self._options.engine_key is not None:
            fields["authorization"] = f"Bearer {self._options.engine_key}"
        lines = [f"{method} {address.path}{path} HTTP/1.1", *map(": ".join, fields.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1") + content

    def _parsed(self, text: bytes) -> Json:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unreachable(f"{self.url} sent something that is not JSON.") from error

    def _refusal(self, answer: _Answer) -> InferenceError:
        text, parsed = answer.take().decode("utf-8", errors="replace"), None
        with suppress(ValueError, RecursionError):
            parsed = json.loads(text)
        return refusal(self.url, answer.status, parsed, text, answer.headers.get("retry-after"))

    def _broken(self, why: str) -> Unreachable:
        return Unreachable(f"The engine at {self.url} cannot be reached: {why}.")


def _reason(error: OSError) -> str:
    """In the system's words; asyncio's own name the address again."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


class _Answer:
    """What the parser has read so far."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.begun = self.complete = False
        self.status = self.size = 0
        self.status_of: Callable[[], int] = int
        self._pieces: list[bytes] = []

    def take(self) -> bytes:
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.begun, self.status = True, self.status_of()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def on_message_complete(self) -> None:
        self.complete = True


class Received(asyncio.Protocol):
    """What arrives on one connection, in pieces.

    asyncio's own streams take twice the processor's time for each token of an engine, mostly to bound each
    wait. Here one timer looks at the connection at times.
    """

    def __init__(self, patience: float) -> None:
        """`patience` is the longest wait for a piece, in seconds."""
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_slowed = self._has_ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._waits_since = 0.0
        # From the connection on: a running timer would keep one that could not be made alive for ever.
        self._timer: asyncio.TimerHandle | None = None

    async def piece(self) -> bytes:
        """All that has arrived; nothing at the end. Raises `OSError`, after a silence `TimeoutError`."""
        if not self._pieces and not self._has_ended:
            self._reader, self._waits_since = self._loop.create_future(), self._loop.time()
            try:
                await self._reader
            finally:
                self._reader = None
        if not self._pieces:
            if self._failure is not None:
                raise self._failure
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._is_slowed:
            self._is_slowed = False
            self.transport.resume_reading()
        return data

    def abort(self) -> None:
        self._stop_timer()
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._timer = self._loop.call_later(self._patience, self._look)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MOST and not self._is_slowed:
            self._is_slowed = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = True
        self._failure = self._failure or error
        self._stop_timer()
        self._wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _look(self) -> None:
        waited = 0.0 if self._reader is None else self._loop.time() - self._waits_since
        if waited >= self._patience:
            self.connection_lost(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._patience - waited, self._look)


class Unreachable(EngineFailed):
    """No connection, or one that broke or fell silent."""


class Refused(EngineFailed):
    """An answer with an error's status. `details` is its error object, or empty."""

    def __init__(self, url: str, status: int, details: Mapping[str, Any], message: str) -> None:
        super().__init__(f"The engine at {url} refused the request ({status}): {_short(message)}")
        self.status, self.details = status, details


class RemoteBusy(EngineBusy):
    """429 or 503: later there may be room."""

    def __init__(self, url: str, status: int, message: str, retry_after: float) -> None:
        words = f"The engine at {url} accepts no request now ({status}): {_short(message)}"
        super().__init__(None, retry_after, words)


def refusal(url: str, status: int, parsed: object, text: str, retry_after: str | None) -> InferenceError:
    """The error of an answer with an error's status. `parsed` is its JSON, if it is JSON."""
    stated = parsed.get("error", parsed) if isinstance(parsed, Mapping) else None
    details: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    message = details.get("message") if details else stated
    spoken = message if isinstance(message, str) and message else text.strip() or "without an explanation"
    if status in _BUSY:
        return RemoteBusy(url, status, spoken, _seconds(retry_after))
    return Refused(url, status, details, spoken)


def _seconds(header: str | None) -> float:
    """`retry-after` may also be a date, which a server of this kind does not send."""
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        return RETRY_AFTER


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
