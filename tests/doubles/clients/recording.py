"""A server that records its clients' requests and its answers, for tests of real clients.

Takes an engine. Returns a running server and every exchange with it: method, path, body, status and the
events of streams. `check` applies the invariants of streams to all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.settings import Settings
from tests.doubles.lints import StreamLint
from tests.doubles.serving import serving


@dataclass
class Exchange:
    """One request and its answer."""

    method: str
    path: str
    headers: dict[str, str]
    sent: bytes = b""
    status: int = 0
    got: bytes = b""
    ended: bool = False  # the answer was sent completely

    @property
    def body(self) -> Any:
        return json.loads(self.sent) if self.sent else None

    @property
    def answer(self) -> Any:
        return json.loads(self.got)

    @property
    def is_stream(self) -> bool:
        return self.got.startswith((b"event:", b"data:", b":"))

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.got.decode().splitlines()
        return [
            json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"
        ]


@dataclass
class Recorder:
    """An application that wraps the server's application."""

    app: ASGIApp
    exchanges: list[Exchange] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(scope["method"], scope["path"], headers)
        self.exchanges.append(exchange)

        async def received() -> Message:
            message = await receive()
            exchange.sent += message.get("body", b"")
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            else:
                exchange.got += message.get("body", b"")
                exchange.ended = not message.get("more_body", False)
            await send(message)

        await self.app(scope, received, sent)

    def of(self, path: str) -> list[Exchange]:
        return [
            exchange for exchange in self.exchanges if exchange.path == path and exchange.method == "POST"
        ]

    def check(self) -> None:
        """Checks that every answer succeeded, and that every completely sent stream is correct."""
        for exchange in self.exchanges:
            assert exchange.status in (200, 426), (exchange.path, exchange.status, exchange.got[:500])
            if exchange.is_stream and exchange.ended:
                check_answer(exchange)


def check_answer(exchange: Exchange) -> None:
    if exchange.path == "/v1/responses":
        lint = StreamLint()
        for event in exchange.events:
            lint.feed(event)
        lint.close()
    else:
        assert exchange.got.endswith(b"data: [DONE]\n\n")
        assert {event["object"] for event in exchange.events} == {"chat.completion.chunk"}
    assert b"<|" not in exchange.got, "Harmony markup in an answer"


@contextmanager
def recorded(engine: Any, settings: Settings | None = None) -> Iterator[tuple[str, Recorder]]:
    made: list[Recorder] = []

    def wrap(app: ASGIApp) -> Recorder:
        made.append(Recorder(app))
        return made[0]

    with serving(engine, settings, wrap=wrap) as url:
        yield url, made[0]
