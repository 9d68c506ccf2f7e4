"""An HTTP server in the test's event loop that a subclass makes behave like an engine, traps included."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

Model = Callable[[Sequence[int]], int]


def some_model(tokens: Sequence[int]) -> int:
    """The next token of a deterministic model, which repeats itself rarely."""
    return (sum(tokens[-7:]) * 31 + len(tokens) * 7) % 5000


@dataclass
class Refusal(Exception):
    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()


class HttpDouble:
    """`async with Double() as double:` serves at `double.url`."""

    ending = b""  # after the last event of a stream

    def __init__(self, model: Model = some_model, context: int = 600) -> None:
        self.model, self.context = model, context
        self.name = "some/model"
        self.requests: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.cut_after: int | None = None  # bytes of a streamed answer, then the connection is reset
        self.sent = 0  # bytes of the last streamed answer
        self.pace = 0.0  # seconds between events
        self.streaming = 0  # streams that run
        self.refusal: Refusal | None = None  # of the next POST requests
        self.ill: Refusal | None = None  # what the path of health answers
        self.silent = False  # the server answers nothing any more
        self.port = 0  # any that is free

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def answer(self, path: str, body: Any) -> Any:
        """JSON, or an iterator of a stream's events. Raises `Refusal`."""
        raise NotImplementedError

    def continued(self, prompt: Sequence[int], body: Any, limit: int) -> Iterator[int]:
        tokens = list(prompt)
        for _ in range(min(limit, self.context - len(prompt))):
            token = self.pick(tokens, body)
            tokens.append(token)
            yield token

    def pick(self, tokens: Sequence[int], body: Any) -> int:
        return self.model(tokens)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._receive(reader, writer)
        finally:
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        body = json.loads(content) if content else None
        if self.silent:
            await reader.read()
            return
        method, path, _ = first.split(" ")
        self.headers.append(headers)
        self.requests.append((path, body))
        await self._answer(method, path, body, reader, writer)

    async def _answer(
        self, method: str, path: str, body: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if self.refusal is not None and method == "POST":
                raise self.refusal
            if path == "/health" and self.ill is not None:
                raise self.ill
            found = self.answer(path, body)
        except Refusal as refusal:
            self._write(writer, refusal)
            return
        if not isinstance(found, Iterator):
            self._write(writer, Refusal(200, found))
            return
        self.streaming += 1
        streaming = asyncio.create_task(self._stream(writer, found))
        leaving = asyncio.create_task(reader.read())
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (streaming, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await task
            self.streaming -= 1

    async def _stream(self, writer: asyncio.StreamWriter, events: Iterator[Any]) -> None:
        self.sent = 0
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        async for piece in self._pieces(head, events):
            left = len(piece) if self.cut_after is None else self.cut_after - self.sent
            writer.write(piece[:left])
            self.sent += len(piece)
            await writer.drain()
            if left < len(piece):
                await asyncio.sleep(0)
                writer.close()
                return

    async def _pieces(self, head: bytes, events: Iterator[Any]) -> AsyncIterator[bytes]:
        yield head
        for event in events:
            if self.pace:
                await asyncio.sleep(self.pace)
            yield _chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        if self.ending:
            yield _chunk(self.ending)
        yield b"0\r\n\r\n"

    @staticmethod
    def _write(writer: asyncio.StreamWriter, answer: Refusal) -> None:
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        further = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        head = f"HTTP/1.1 {answer.status} Status\r\ncontent-length: {len(content)}\r\n{further}\r\n"
        writer.write(head.encode() + content)


def _chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"
