"""HTTP/1.1 connections: uvicorn's, except for upgrades, unreadable bytes and streams to HTTP/1.0 clients.

Takes the bytes of a connection and passes requests to the application as uvicorn does, with three exceptions:

- A request that offers HTTP/2 (`Upgrade: h2c`), as Java's client sends, keeps its body; so does a POST that
  offers a WebSocket, which only a GET can open. A server may ignore such an offer and answer the request (RFC
  9110, 7.8); uvicorn treats the bytes after the head as the other protocol's.
- The answer to bytes that are not a request has an error body and an `x-request-id`, like any other. If such
  bytes follow a request, for example because its Content-Length is too small, that request is still answered.
- A stream to an HTTP/1.0 client, which does not know chunks, has none: it ends with the connection.
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
                self._continue_with(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["http_version"] != "1.1" and not self._should_upgrade():
            _without_chunks(self.cycle)

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def send_400_response(self, msg: str) -> None:
        """`msg` is the parser's description. Complete requests before it are answered first."""
        if self.cycle is not None and not (self.cycle.response_complete or self.cycle.more_body):
            # That request's answer ends the connection; the bytes after it get no answer.
            self.cycle.keep_alive = False
            return
        error = InvalidHttp(
            f"This is not an HTTP/1.1 request: {msg}. The server speaks plain HTTP/1.1: use http:// in the "
            "URL, not https://, and check that Content-Length is the number of bytes in the body."
        )
        body = to_json(error.body())
        head = (
            f"HTTP/1.1 {error.status} Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\nx-should-retry: false\r\n"
            f"{HEADER}: {new_request_id()}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _continue_with(self, rest: bytes) -> None:
        """Reads the body of a request with an ignored offer: its parser stopped after the head."""
        framing = [(name, value) for name, value in self.headers if name in _FRAMING]
        self.parser = _parser_for(_AfterHead(self) if framing else self)
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


def _parser_for(callbacks: Any) -> Any:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn: for pipelined requests
    return parser


class _AfterHead:
    """Parser callbacks that skip the head of the first message: the connection has handled it already."""

    def __init__(self, connection: HttpProtocol) -> None:
        self._connection = connection
        self._skips_head = True  # until the first message ends

    def on_message_begin(self) -> None:
        if not self._skips_head:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._skips_head:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._skips_head:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._skips_head:
            self._connection.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        self._skips_head = False
        self._connection.on_message_complete()
