"""A kernel's messages: the channel that brings them, and the outputs that they become."""

import asyncio
import base64
import json
import random
import struct
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from tools.python import channel as channels
from tools.python.channel import Channel, ChannelEnded, Kind, Received, connect, received, request
from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.session import read_source

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
        struct.pack(">BQ", 2, channels.MAX_MESSAGE + 1),
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


PNG = b"\x89PNG\r\n\x1a\n" + b"rest"


def message(kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> Received:
    return Received(kind, "1", metadata or {}, content)


def stream(text: Any, cut: Any = None) -> Received:
    return message("stream", {"name": "stdout", "text": text}, {} if cut is None else {"cut": cut})


def picture(content: Any) -> Received:
    encoded = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    return message("display_data", {"data": {"image/png": encoded, "text/plain": "<Figure>"}})


def fed(*messages: Received, **limits: int) -> Outputs:
    outputs = Outputs(CellOutputLimits(**limits))
    for one in messages:
        outputs.feed(one)
    return outputs


def test_text_that_fits_is_whole() -> None:
    outputs = fed(*map(stream, ("a\n", "b", "c\n")), characters=100)
    assert outputs.text() == "a\nbc\n"
    assert outputs.entries() == [{"type": "logs", "logs": "a\nbc\n"}]


def test_logs_and_images_keep_their_order() -> None:
    result = message("execute_result", {"data": {"text/plain": "42", "text/html": "<b>42</b>"}})
    outputs = fed(stream("before"), picture(base64.b64encode(PNG).decode() + "\n"), result)
    assert outputs.text() == "before\n[image]\n42\n"
    assert [entry["type"] for entry in outputs.entries()] == ["logs", "image", "logs"]
    assert outputs.entries()[1]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.mark.parametrize("seed", range(20))
def test_the_middle_is_cut_and_the_count_is_right_however_text_arrives(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice("abcdef\n") for _ in range(chance.randrange(101, 5000)))
    parts, rest = [], text
    while rest:
        size = chance.choice([1, 7, 60, 1000])
        parts.append(stream(rest[:size]))
        rest = rest[size:]
    note = f"\n[… {len(text) - 100} characters of output were cut here …]\n"
    assert fed(*parts, characters=100).text() == text[:50] + note + text[-50:]


def test_a_cut_at_the_source_is_counted() -> None:
    assert "1100 characters" in fed(stream("a" * 200, cut=1000), characters=100).text()


def test_a_long_text_with_images_keeps_the_images() -> None:
    text = fed(*[stream("x" * 500), picture(PNG)] * 3, characters=100).text()
    assert text.count("[image]") == 3
    assert "1400 characters" in text


def test_images_are_limited_in_number_and_size() -> None:
    outputs = fed(*map(picture, (PNG, PNG + b"x" * 1000, PNG, PNG)), images=2, image_bytes=1000)
    assert [entry["type"] for entry in outputs.entries()] == ["image", "logs", "image", "logs"]
    assert "more than 1000 bytes" in outputs.text()
    assert "only 2 are kept" in outputs.text()


def test_an_image_of_none_is_no_image() -> None:
    assert fed(picture(None)).text() == "<Figure>\n"


@pytest.mark.parametrize("content", ["", "!!", 5, ["x"], b"<html>"])
def test_data_that_is_not_an_image_is_noted_and_not_passed_on(content: Any) -> None:
    outputs = fed(picture(content))
    assert "cannot be read" in outputs.text()
    assert all(entry["type"] == "logs" for entry in outputs.entries())


def test_terminal_codes_and_lone_surrogates_are_removed() -> None:
    traceback = ["\x1b[31mZero\x1b[0m", "\x1b]8;;u\x07at \ud800\x00"]
    assert fed(message("error", {"traceback": traceback})).text() == "Zero\nat ?\x00\n"


@pytest.mark.parametrize(
    "content",
    [{}, {"text": None}, {"text": 5}, {"data": 3}, {"data": {"text/plain": {}}}, {"traceback": [None, 1]}],
)
def test_content_of_any_shape_is_accepted(content: dict[str, Any]) -> None:
    for kind in ("stream", "display_data", "execute_result", "error", "status", "comm_open"):
        fed(message(kind, content, {"cut": "many"})).text().encode()


def test_a_request_reads_back_unchanged() -> None:
    frames = request("key", "execute_request", "7", "s", {"code": "x"})
    taken = received([b"identity", *frames])
    assert taken == Received("execute_request", "", {}, {"code": "x"})


LARGE = (b"[" * 200_000, b'{"msg_type": ' + b"9" * 10_000 + b"}")
LONG = b'{"msg_type": "' + b"x" * 100_000 + b'"}'
HEADERS = (b"{}", b"[]", b'{"msg_type": 3}', b"\xff\xfe", LONG, *LARGE)
MARK = [b"<IDS|MSG>", b"s"]
ODD_PARENT = [*MARK, b'{"msg_type": "a"}', b'{"msg_id": []}', b"{}", b"{}"]


@pytest.mark.parametrize(
    "frames",
    [
        *([], MARK[:1], [*MARK, b"{}", b"{}"], ODD_PARENT),
        *([*MARK, header, b"{}", b"{}", b"{}"] for header in HEADERS),
    ],
    ids=range(11),
)
def test_frames_without_a_message_give_none(frames: list[bytes]) -> None:
    assert received(frames) is None


MEANT = "x = 1\nprint('a\\nb')"


@pytest.mark.parametrize(
    "written",
    [
        *(MEANT, json.dumps({"code": MEANT}), json.dumps({"source": MEANT})),
        *("  " + json.dumps({"input": MEANT}) + "\n", '{"code": "x = 1\nprint(\'a\\\\nb\')"}'),
        *(f"```python\n{MEANT}\n```", f"```py\n{MEANT}\n```\n", f"```\n{MEANT}\n```", f"```python\n{MEANT}"),
        *(f"\n```Python\r\n{MEANT}\n```  ", json.dumps({"code": f"```python\n{MEANT}\n```"})),
    ],
)
def test_slips_are_read_as_the_intended_source(written: str) -> None:
    assert read_source(written) == MEANT


@pytest.mark.parametrize(
    "source",
    [
        *("", "{'code': 'x'}", '{"code": 1}', '{"code": "x", "other": "y"}', '{"a": 1}["a"]'),
        *('{"code": "x"}["code"]', '{"code": ', "s = '```python\\nx\\n```'", '"""```"""', "%timeit 1"),
        *("```python\na\n```\ntext\n```python\nb\n```", "[" * 100_000, '{"a":' * 100_000),
    ],
)
def test_anything_else_is_source_unchanged(source: str) -> None:
    assert read_source(source) == source
