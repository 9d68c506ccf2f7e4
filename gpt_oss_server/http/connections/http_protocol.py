"""HTTP/1.1 connections: uvicorn's, except for limits, upgrades, unreadable bytes and HTTP/1.0 streams.

Takes the bytes of a connection and passes requests to the application as uvicorn does, with these exceptions:

- A request that offers HTTP/2 (`Upgrade: h2c`), as Java's client sends, keeps its body; so does a POST that
  offers a WebSocket, which only a GET can open. A server may ignore such an offer and answer the request (RFC
  9110, 7.8); uvicorn treats the bytes after the head as the other protocol's.
- The answer to bytes that are not a request has an error body and an `x-request-id`, like any other. If such
  bytes follow a request, for example because its Content-Length is too small, that request is still answered.
- A stream to an HTTP/1.0 client, which does not know chunks, has none: it ends with the connection.
- A head that is too large is refused before it is whole, and so is a request that takes too long to arrive.
- At the limit of connections, a new one takes the place of one that does nothing (`room`), some of them once
  their request has arrived. If all are at work, it may only ask for the server's health.
- Requests and WebSockets that arrive together begin one after another (`turnstile`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, cast

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gpt_oss_server.caller.record import log_refused_connection
from gpt_oss_server.errors import ApiError, EngineUnavailable, HeadTooLarge, InvalidHttp, RequestTimeout
from gpt_oss_server.http.answers import headers_of
from gpt_oss_server.http.connections.limits import ConnectionLimits, Deadline
from gpt_oss_server.http.connections.room import HEALTH, SPARE, Held, gives_way
from gpt_oss_server.http.connections.socket_protocol import SocketProtocol
from gpt_oss_server.http.connections.turnstile import Turnstile
from gpt_oss_server.http.edge import HEADER, new_connection, new_request_id, set_connection

_FRAMING = (b"content-length", b"transfer-encoding")
_LINGERING = 2.0  # seconds in which a refused client's bytes are dropped, so that it reads the answer


class HttpProtocol(HttpToolsProtocol):
    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    turnstile: ClassVar[Turnstile] = Turnstile()

    @classmethod
    def within(cls, limits: ConnectionLimits) -> type[HttpProtocol]:
        """The same for one server, with its limits: uvicorn takes a class."""
        return type("LimitedHttpProtocol", (cls,), {"limits": limits, "turnstile": Turnstile()})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.turnstile.connection_arrives()
        self._name = new_connection()
        self._refusal: ApiError | None = None
        self._is_refused = False  # no further byte is parsed
        self._ends_with_server = False
        self._held = 0  # bytes since the parser last passed something on
        self._reads_head = True
        self._idle_since = self._head_at = self.loop.time()
        self.is_spare = False  # above the limit of connections
        self._deadline = Deadline(self.loop, self.limits, lambda: self.flow.read_paused, self._on_late)
        self._deadline.start()
        if not self._takes_place():
            self.is_spare = len(self.connections) <= self.limits.count + SPARE
            if not self.is_spare and not self._takes_place(young=True):
                self._refuse(self._no_room())

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._is_refused:
            return
        if self._is_idle and not self._deadline.is_set:
            self._deadline.start()
        self._held += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._deadline.stop()
                self.flow.pause_reading()
                self.turnstile.pass_through(self._begin_socket)
            else:
                self._continue_with(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if self._refusal is not None:
                self._refuse(self._refusal)
            else:
                self.send_400_response(str(error))
        else:
            if self._held > self.limits.head_bytes:
                self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads_head = True
        set_connection(self.scope, self._name)  # type: ignore[arg-type]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reads_head:  # the application has the list already when trailers arrive
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._held = 0
        self._reads_head = False
        self._head_at = self.loop.time()
        sizes = [len(self.url), *(len(name) + len(value) for name, value in self.headers)]
        if sum(sizes) > self.limits.head_bytes or max(sizes) > self.limits.line_bytes:
            self._refusal = self._head_too_large()
        elif self.is_spare and self.url not in HEALTH and not self._takes_place(young=True):
            self._refusal = self._no_room()
        if self._refusal is not None:
            raise self._refusal  # ends the parser's work on these bytes
        self._deadline.start()
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1" and not self._should_upgrade():
            _without_chunks(self.cycle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        begin = partial(super()._start_asgi_task, cycle, app)
        if self.url in HEALTH:
            begin()
        else:
            self.turnstile.pass_through(begin)

    def _begin_socket(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        self._held = 0
        self._deadline.extend(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held = 0
        self._reads_head = True
        self._deadline.stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self._ends_with_server:
            self._abort_soon()

    def shutdown(self) -> None:
        """Ends the connection once it is idle, because the server stops."""
        super().shutdown()
        self._ends_with_server = True
        if self._is_idle:
            self._abort_soon()

    def _abort_soon(self) -> None:
        """With TLS, `close` waits for the client's own farewell, which idle clients never read to send."""
        if self.transport.get_extra_info("ssl_object") is not None:
            self.loop.call_later(_LINGERING, self.transport.abort)

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is at work: none has arrived as a whole, or all are answered."""
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    # Refusals -----------------------------------------------------------------------------------------

    @property
    def holder(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def idle_since(self) -> float | None:
        return self._idle_since if self._is_idle and not self.transport.is_closing() else None

    @property
    def unfinished_since(self) -> float | None:
        waits = self.cycle is not None and self.cycle.more_body and not self.cycle.response_started
        goes = self._is_refused or self.transport.is_closing()
        return self._head_at if waits and not goes else None

    def _takes_place(self, *, young: bool = False) -> bool:
        """Whether it has a place, its own or that of another."""
        if len(self.connections) > self.limits.count:
            connections = cast("set[Held]", self.connections)
            other = gives_way(connections, self, self.loop.time(), young=young)
            if not isinstance(other, HttpProtocol | SocketProtocol):
                return False
            other.give_way()
        self.is_spare = False
        return True

    def give_way(self) -> None:
        """Closes a connection that does nothing, for another."""
        if self.idle_since is None:
            self._refuse(self._no_room())
        else:
            self._close()

    def _no_room(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"All {self.limits.count} connections of this server are in use (--max-connections). "
            "Connect again later."
        )

    def _head_too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The request's head is larger than {self.limits.head_bytes:,} bytes, or one of its headers than "
            f"{self.limits.line_bytes:,}. Send fewer or shorter headers, and put data into the body."
        )

    def _on_late(self) -> None:
        at_work = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing() or (at_work and self.cycle.response_started):
            return  # an answer that began before the request was whole ends by itself
        if self._reads_head and not self._held:
            self._close()  # nothing was sent
        elif not self._reads_head and not at_work:
            self._close()  # the rest of a body whose request has been answered
        else:
            self._refuse(
                RequestTimeout(
                    f"The request did not arrive within {self.limits.seconds:g} seconds, plus a second for "
                    f"each {self.limits.body_rate:,} bytes of its body. Send it again, faster."
                )
            )

    def _close(self) -> None:
        self._deadline.stop()
        self._unset_keepalive_if_required()
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """`msg` is the parser's description."""
        self._refuse(
            InvalidHttp(
                f"This is not an HTTP/1.1 request: {msg}. The server speaks plain HTTP/1.1: use http:// in "
                "the URL, not https://, and check that Content-Length is the number of bytes in the body."
            )
        )

    def _refuse(self, error: ApiError) -> None:
        """Answers with the error and closes, after a moment in which the client's further bytes are dropped.

        A connection that closes while it has unread bytes is reset, which can cost the client the answer.
        Requests that arrived before are answered first, and then end the connection.
        """
        self._is_refused = True
        self._deadline.stop()
        if self.cycle is not None and not self.cycle.response_complete:
            if self.pipeline or not self.cycle.more_body:
                self.cycle.keep_alive = False
                return
            self.cycle.disconnected = True  # its application waits for the rest of the body
            self.cycle.message_event.set()
        body, request_id = to_json(error.body()), new_request_id()
        log_refused_connection(request_id, self.client[0] if self.client else "unknown", error.status, body)
        further = "".join(f"{name}: {value}\r\n" for name, value in headers_of(error).items())
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n{further}{HEADER}: {request_id}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGERING, self.transport.close)

    def _continue_with(self, rest: bytes) -> None:
        """Reads the body of a request with an ignored offer: its parser stopped after the head."""
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        self.parser = httptools.HttpRequestParser(_AfterHead(self) if framing else self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn
        if framing:
            self.cycle.more_body = True
            self.cycle.message_event.clear()
            head = b"".join(name + b": " + value + b"\r\n" for name, value in framing)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        self.data_received(rest)


def _without_chunks(cycle: RequestResponseCycle) -> None:
    """Sends an answer without Content-Length unchunked: uvicorn expects exactly the length of each piece."""
    send = cycle.send
    is_stream = False

    async def send_plain(message: Any) -> None:
        nonlocal is_stream
        if message["type"] == "http.response.start":
            is_stream = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if is_stream:
                cycle.chunked_encoding = False
        elif is_stream:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_plain  # type: ignore[method-assign]


class _AfterHead:
    """Parser callbacks that skip the head of the first message: the connection has handled it already."""

    def __init__(self, connection: HttpProtocol) -> None:
        self._connection = connection
        self._skips_head = True  # until the first message ends
        self.on_body = connection.on_body
        for name in ("on_message_begin", "on_url", "on_header", "on_headers_complete"):
            setattr(self, name, partial(self._of_head, getattr(connection, name)))

    def _of_head(self, callback: Callable[..., None], *parsed: bytes) -> None:
        if not self._skips_head:
            callback(*parsed)

    def on_message_complete(self) -> None:
        self._skips_head = False
        self._connection.on_message_complete()
