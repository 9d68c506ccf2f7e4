"""A kernel's channel, against ZeroMQ's own library and against ends that break every rule."""

import asyncio
import json
import struct
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq

from tools.python import channel as channels
from tools.python.channel import MAX_MESSAGE, Channel, ChannelEnded, Kind, connect, received, request

MIB = 1024 * 1024
GREETING = struct.pack(">BQBBB20sB31x", 0xFF, 1, 0x7F, 3, 1, b"NULL", 0)
READY = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\3PUB"
assert len(READY) == 2 + 0x19


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.mark.parametrize("sizes", [[5], [0, 1, 255, 256, 70_000], [3 * MIB, 3 * MIB]])
async def test_requests_and_answers_of_zeromqs_library(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]], sizes: list[int]
) -> None:
    router = context.socket(zmq.ROUTER)
    router.bind(f"ipc://{tmp_path}/s")
    channel = await connect(tmp_path / "s", Kind.REQUESTS)
    frames = [bytes([at]) * size for at, size in enumerate(sizes)]
    channel.send(frames)
    identity, *seen = await asyncio.to_thread(router.recv_multipart)
    assert seen == frames
    for _ in range(3):
        await asyncio.to_thread(router.send_multipart, [identity, *frames])
        assert await channel.receive() == frames
    channel.close()
    router.close(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("kind", Kind)
async def test_a_channel_that_ends_amid_messages_leaves_whole_ones(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]], kind: Kind
) -> None:
    sender = context.socket(zmq.XPUB if kind is Kind.OUTPUTS else zmq.ROUTER)
    sender.bind(f"ipc://{tmp_path}/s")
    channel = await connect(tmp_path / "s", kind)
    if kind is Kind.OUTPUTS:
        assert await asyncio.to_thread(sender.recv) == b"\x01"  # the subscription
        head = []
    else:
        channel.send([b"hello"])
        head = (await asyncio.to_thread(sender.recv_multipart))[:1]
    for _ in range(300):
        sender.send_multipart([*head, *[b"part"] * 7])
    for _ in range(5):
        assert await channel.receive() == [b"part"] * 7
    sender.close(0)
    with pytest.raises(ChannelEnded):
        await only_whole_ones(channel)
    channel.send([b"it has no reader"])


async def only_whole_ones(channel: Channel) -> None:
    while True:
        assert await channel.receive() == [b"part"] * 7


@asynccontextmanager
async def answering(path: Path, greeting: bytes, sent: bytes = b"") -> AsyncIterator[Path]:
    """A socket that sends a greeting, and other bytes again and again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(greeting)
            while sent:
                writer.write(sent)
                await writer.drain()
            await reader.read()
        except OSError:
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_unix_server(answer, path / "s")
    try:
        yield path / "s"
    finally:
        server.close()


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">BQ", 3, 7 * MIB) + b"x" * (7 * MIB),  # more follow, each below the limit
        struct.pack(">BQ", 2, MAX_MESSAGE + 1),
        struct.pack(">BQ", 2, 2**64 - 1),
        struct.pack(">BQ", 6, 2**40),
        b"\x01\x00",
        b"\x04\x00",
    ],
    ids=["frames", "one frame", "the largest number", "a command", "empty frames", "empty commands"],
)
async def test_a_message_is_refused_before_it_takes_memory_or_time(tmp_path: Path, frame: bytes) -> None:
    async with answering(tmp_path, GREETING + READY, frame) as path:
        channel = await connect(path, Kind.OUTPUTS)
        tracemalloc.start()
        try:
            with pytest.raises(ChannelEnded):
                await channel.receive()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 32 * MIB


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n" * 10, b"", GREETING + b"\x00\x01x", GREETING[:20]]
)
async def test_an_end_that_is_no_kernel_is_refused(
    tmp_path: Path, greeting: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "_HANDSHAKE", 0.5)
    async with answering(tmp_path, greeting) as path:
        for place in (path, tmp_path / "nothing"):
            with pytest.raises(ChannelEnded):
                await connect(place, Kind.OUTPUTS)
    await asyncio.sleep(0.05)  # both ends close their transports


@pytest.mark.parametrize("content", [b"[],", b"{},", b"0,"], ids=["lists", "mappings", "numbers"])
def test_content_of_very_many_parts_is_not_parsed(content: bytes) -> None:
    frames = request("key", "stream", "1", "s", {})

    def with_parts(count: int) -> list[bytes]:
        return [*frames[:-1], b'{"a":[' + content * count + b"0]}"]

    assert received(with_parts(100_000)) is not None
    many = with_parts(2_600_000)
    began = time.monotonic()
    assert received(many) is None
    refused = time.monotonic() - began
    began = time.monotonic()
    json.loads(many[-1])
    assert refused < time.monotonic() - began


def test_headers_are_short() -> None:
    frames = request("key", "stream", "1", "s", {})
    frames[2] = b'{"msg_type": "' + b"x" * 100_000 + b'"}'
    assert received(frames) is None
