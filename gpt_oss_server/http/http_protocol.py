"""HTTP/1.1 connections of our server: uvicorn's, which answer a request that would rather be something else.

In: what comes over a connection. Out: the same to the application, but for these:

- A request that offers to go on as HTTP/2 (`Upgrade: h2c`), as those of Java's own client do, keeps its body;
  so does a POST that offers a WebSocket, which only a GET can open. A server may pass over such an offer, and
  then the request counts as it stands (RFC 9110, 7.8); uvicorn takes what comes behind its head for the other
  protocol's.
- What is no request is told so as everything else is: with an error's body and an `x-request-id`. Behind a
  request, as where its Content-Length is too small, it does not take that request's answer away.
- A stream is not cut into chunks for a client of HTTP/1.0, which knows none: it ends with the connection.
"""

from __future__ import annotations

from typing import Any

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gpt_oss_server.errors import InvalidHttp
from gpt_oss_server.http.edge import HEADER, new_request_id

_FRAMING = (b"content-length", b"transfer-encoding")


class HttpProtocol(HttpToolsProtocol):
    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._go_on_with(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1" and not self._should_upgrade():
            _without_chunks(self.cycle)

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def send_400_response(self, msg: str) -> None:
        """`msg` is what the parser says of it. Whole requests before it are answered first."""
        if self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body):
            # Its answer ends the connection, and nothing is said to what follows.
            self.cycle.keep_alive = False
            return
        error = InvalidHttp(
            f"This is no request of HTTP/1.1: {msg}. The server speaks plain HTTP/1.1: use http:// in the "
            "URL, not https://, and see that Content-Length counts the bytes of the body."
        )
        body = to_json(error.body())
        head = (
            f"HTTP/1.1 {error.status} Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\nx-should-retry: false\r\n"
            f"{HEADER}: {new_request_id()}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _go_on_with(self, rest: bytes) -> None:
        """Reads on behind the head of a request with such an offer: for the parser it was over."""
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        self.parser = _parser_for(_BehindHead(self) if framing else self)
        if framing:
            self.cycle.more_body = True
            self.cycle.message_event.clear()
            head = b"".join(name + b": " + value + b"\r\n" for name, value in framing)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        self.data_received(rest)


def _without_chunks(cycle: RequestResponseCycle) -> None:
    """Of an answer whose length is not told, each piece is the whole of what uvicorn still expects."""
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


def _parser_for(callbacks: Any) -> Any:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own: what is pipelined
    return parser


class _BehindHead:
    """What a parser calls that has to be told the head of the message again, which the connection knows."""

    def __init__(self, connection: HttpProtocol) -> None:
        self._connection = connection
        self._is_known = True  # until the message is over

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._connection.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        self._is_known = False
        self._connection.on_message_complete()
