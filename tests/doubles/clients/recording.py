"""A server that records its clients' requests and its answers, for tests of real clients."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.settings import Settings
from tests.doubles.lints import check_stream
from tests.doubles.serving import serving


@dataclass
class Exchange:
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
        return [json.loads(line[6:]) for line in self.got.decode().splitlines() if line.startswith("data: {")]


@dataclass
class Recorder:
    app: ASGIApp = field(init=False)
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
        return [each for each in self.exchanges if each.path == path and each.method == "POST"]

    def check(self) -> None:
        """Checks that every answer succeeded, and that every completely sent stream is correct."""
        for exchange in self.exchanges:
            assert exchange.status in (200, 426), (exchange.path, exchange.status, exchange.got[:500])
            if exchange.is_stream and exchange.ended:
                check_answer(exchange)


def check_answer(exchange: Exchange) -> None:
    if exchange.path == "/v1/responses":
        check_stream(exchange.events)
    else:
        assert exchange.got.endswith(b"data: [DONE]\n\n")
        assert {event["object"] for event in exchange.events} == {"chat.completion.chunk"}
    assert b"<|" not in exchange.got, "Harmony markup in an answer"


@contextmanager
def recorded(engine: Any, settings: Settings | None = None) -> Iterator[tuple[str, Recorder]]:
    recorder = Recorder()

    def wrap(app: ASGIApp) -> Recorder:
        recorder.app = app
        return recorder

    with serving(engine, settings, wrap=wrap) as url:
        yield url, recorder
