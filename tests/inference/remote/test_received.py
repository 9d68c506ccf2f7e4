"""What arrives on one connection: in pieces, bounded in memory and in silence."""

import asyncio
import gc
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from inference.remote.received import Received

pytestmark = pytest.mark.anyio
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def received_from(serve: Serve, patience: float = 30.0) -> AsyncIterator[Received]:
    served = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    _, received = await loop.create_connection(lambda: Received(patience), "127.0.0.1", port)
    try:
        yield received
    finally:
        received.abort()
        server.close()
        await served.wait()


async def test_pieces_that_wait_are_one() -> None:
    goes_on, has_sent = asyncio.Event(), asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a")
        await goes_on.wait()
        for part in (b"b", b"c"):
            writer.write(part)
            await asyncio.sleep(0.02)
        has_sent.set()

    async with received_from(serve) as received:
        assert await received.piece() == b"a"
        goes_on.set()
        await has_sent.wait()
        await asyncio.sleep(0.1)
        assert await received.piece() == b"bc"
        assert await received.piece() == b""
        assert await received.piece() == b"", "the end stays the end"


async def test_what_came_before_a_reset_is_read_first() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"whole")
        await asyncio.sleep(0.05)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with received_from(serve) as received:
        await asyncio.sleep(0.3)
        assert await received.piece() == b"whole"
        with pytest.raises(ConnectionResetError):
            await received.piece()


async def test_silence_is_an_error_but_a_slow_reader_is_not() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await reader.read()

    async with received_from(serve, patience=0.1) as received:
        await asyncio.sleep(0.4)
        assert await received.piece() == b"x"
        started = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await received.piece()
        assert asyncio.get_running_loop().time() - started >= 0.09, "the wait counts, not the time before"


async def test_one_whose_connection_fails_is_freed() -> None:
    """As after a failed TLS handshake, before which nothing is connected."""
    made: list[Received] = []

    def factory() -> Received:
        made.append(Received(30.0))
        return made[0]

    async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(closes, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.get_running_loop().create_connection(
            factory, "127.0.0.1", port, ssl=ssl.create_default_context()
        )
    server.close()
    await asyncio.sleep(0.05)
    freed = weakref.ref(made.pop())
    gc.collect()
    assert freed() is None


async def test_a_reader_that_does_not_read_slows_the_other_side_down() -> None:
    sent = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(400):
            writer.write(b"y" * 100_000)
            await writer.drain()
            sent += 100_000

    async with received_from(serve) as received:
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 30_000_000, "the rest waits at the other side"
        read = 0
        while piece := await received.piece():
            read += len(piece)
        assert read == 40_000_000
