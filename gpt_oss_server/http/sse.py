"""Server-sent events: encodes event objects, and the HTTP response that carries them.

One write for each batch splits no event. A client that disconnects ends the iteration immediately, which
closes the generation. A heartbeat interrupts a long silence.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from pydantic_core import to_json
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gpt_oss_server.caller.record import CLIENT_LEFT, client_left

Event = dict[str, Any]
T = TypeVar("T")
E = TypeVar("E")
COMMENT = b": still here\n\n"
"""Every client ignores a comment; some treat an event without data as an event."""


_LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
"""U+0085, U+2028 and U+2029 in UTF-8 and in JSON's escaped form. Some clients end a line at them."""


def encode(event: Event) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), to_line(event))


def to_line(value: object) -> bytes:
    """The value as JSON without any character at which a client may split lines."""
    line = to_json(value)
    if line.isascii():
        return line
    for raw, escaped in _LINE_ENDS:  # only strings can contain them
        line = line.replace(raw, escaped)
    return line


async def client_gone(receive: Receive) -> None:
    """Returns when the client has closed the connection. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T | None:
    """The result of `work`, or None if the client disconnects first, which cancels `work`."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(client_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, watch):
            future.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def json_unless_gone(
    receive: Receive, work: Awaitable[Any], headers: Mapping[str, str] | None = None
) -> Response:
    """The answer with the result of `work`; nobody reads one whose client has disconnected."""
    whole = await unless_gone(receive, work)
    return Response(status_code=CLIENT_LEFT) if whole is None else JSONResponse(whole, headers=headers)


class EventStream(Response, Generic[E]):
    """Streams batches of events. Always closes them, also when the client disconnects midway."""

    media_type = "text/event-stream"

    def __init__(
        self,
        batches: Callable[[], AsyncGenerator[Sequence[E], None]],
        encoder: Callable[[E], bytes],
        headers: dict[str, str] | None = None,
        *,
        keep_alive: float | None = None,
        beat: Callable[[], Sequence[E]] = tuple,
        end: bytes = b"",
    ) -> None:
        super().__init__(
            headers={"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})},
            media_type="text/event-stream",
        )
        del self.headers["content-length"]
        self._batches = batches
        self._encoder = encoder
        self._keep_alive = keep_alive  # seconds of silence before a heartbeat
        self._beat = beat  # the events of a heartbeat; without any, a comment
        self._end = end  # follows the last batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await unless_gone(receive, self._pump(send)) is None:
            client_left()

    async def _pump(self, send: Send) -> bool:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        encoder = self._encoder

        async def write(batch: Sequence[E]) -> None:
            if batch:
                body = b"".join([encoder(event) for event in batch])
                await send({"type": "http.response.body", "body": body, "more_body": True})

        async def beat() -> None:
            if events := self._beat():
                await write(events)
            else:
                await send({"type": "http.response.body", "body": COMMENT, "more_body": True})

        await pump(self._batches(), write, beat, self._keep_alive)
        await send({"type": "http.response.body", "body": self._end, "more_body": False})
        return True


async def pump(
    batches: AsyncGenerator[T, None],
    write: Callable[[T], Awaitable[None]],
    beat: Callable[[], Awaitable[None]],
    every: float | None,
) -> None:
    """Writes every batch, and calls `beat` in each silence. Always closes the batches."""
    if every is None:
        async with aclosing(batches):
            async for batch in batches:
                await write(batch)
        return
    silence = _Silence(beat, every)
    watch = asyncio.create_task(silence.watch())
    try:
        async with aclosing(batches):
            async for batch in batches:
                async with silence:
                    await write(batch)
    finally:
        watch.cancel()
        [outcome] = await asyncio.gather(watch, return_exceptions=True)
    if isinstance(outcome, Exception):  # a heartbeat failed; a cancellation is not an Exception
        raise outcome


class _Silence:
    """The time of the last write, and a lock, so that a beat and a batch are never written concurrently."""

    def __init__(self, beat: Callable[[], Awaitable[None]], every: float) -> None:
        self._beat = beat
        self._every = every
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._writing.acquire()

    async def __aexit__(self, *raised: object) -> None:
        self._since = self._clock()
        self._writing.release()

    async def watch(self) -> None:
        while True:
            # Writing a batch to a slow client is not silence.
            due = self._since + self._every if not self._writing.locked() else self._clock() + self._every
            if (wait := due - self._clock()) > 0:
                await asyncio.sleep(wait)
                continue
            async with self:
                await self._beat()
