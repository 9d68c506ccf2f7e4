"""HTTP/1.1 connections of our server: uvicorn's, which answer a request that would rather be something else.

In: what comes over a connection. Out: the same to the application, but for one thing: a request that offers
to go on as HTTP/2 (`Upgrade: h2c`), as those of Java's own client do, keeps its body. A server may pass over
such an offer, and then the request counts as it stands (RFC 9110, 7.8); uvicorn takes what comes behind its
head for the other protocol's.
"""

from __future__ import annotations

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

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
