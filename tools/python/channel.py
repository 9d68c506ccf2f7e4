"""A channel to a kernel: messages of several frames over a unix socket, in ZMTP 3.0 (rfc.zeromq.org/spec/23).

ZeroMQ's own library limits single frames but not their number, reconnects, and aborts the process in some
cases. Here a message's size is refused before it is read, and a channel connects once: code in the box can
replace the socket's file by a link to one of the host's sockets, which a second connection would follow.
"""

import asyncio
import hashlib
import hmac
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

MAX_MESSAGE = 8 * 1024 * 1024  # bytes of all frames; `inside.py` keeps honest messages below it
_MAX_FRAMES = 256  # an honest message has six, and one for each buffer of a widget
_HANDSHAKE = 10.0  # seconds; an honest kernel listens already
_READ_AHEAD = 128 * 1024

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING = struct.pack(">BQBBB20sB31x", 0xFF, 0, 0x7F, 3, 0, b"NULL", 0)
_SUBSCRIBE_TO_ALL = b"\x01"


class ChannelEnded(Exception):
    """The other end closed the channel, or sent what no honest kernel sends."""


class Kind(StrEnum):
    """The type of this end of a channel."""

    REQUESTS = "DEALER"
    OUTPUTS = "SUB"


class Channel:
    """A connected channel. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, frames: Sequence[bytes]) -> None:
        """Sends a message. On an ended channel it does nothing: the reader learns of the end."""
        if self._writer.is_closing():
            return
        last = len(frames) - 1
        parts = [_frame(_MORE if at < last else 0, frame) for at, frame in enumerate(frames)]
        self._writer.write(b"".join(parts))

    async def receive(self) -> list[bytes]:
        """The next message."""
        frames: list[bytes] = []
        size = 0
        for _ in range(_MAX_FRAMES):
            flags, length = await self._head()
            size += length
            if size > MAX_MESSAGE:
                break
            frame = await self._exactly(length)
            if flags & _COMMAND:
                continue  # a heartbeat or the like
            frames.append(frame)
            if not flags & _MORE:
                return frames
        self.close()
        raise ChannelEnded("a message is too large")

    def close(self) -> None:
        self._writer.transport.abort()

    async def greet(self, kind: Kind) -> None:
        """Introduces this end and waits until the other has done so."""
        self._writer.write(_GREETING + _frame(_COMMAND, _ready(kind)))
        greeting = await self._exactly(len(_GREETING))
        if greeting[0] != 0xFF or greeting[10] < 3:
            raise ChannelEnded("not ZeroMQ")
        flags, length = await self._head()
        if not flags & _COMMAND or length > _READ_AHEAD:
            raise ChannelEnded("no introduction")
        await self._exactly(length)
        if kind is Kind.OUTPUTS:
            self.send([_SUBSCRIBE_TO_ALL])

    async def _head(self) -> tuple[int, int]:
        flags, length = await self._exactly(2)
        if flags & _LONG:
            rest = await self._exactly(7)
            length = int.from_bytes(bytes([length]) + rest)
        return flags, length

    async def _exactly(self, length: int) -> bytes:
        try:
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelEnded("the other end closed it") from error


async def connect(path: Path, kind: Kind) -> Channel:
    """Connects once. Raises ChannelEnded."""
    try:
        async with asyncio.timeout(_HANDSHAKE):
            streams = await asyncio.open_unix_connection(path, limit=_READ_AHEAD)
            channel = Channel(*streams)
            try:
                await channel.greet(kind)
            except BaseException:
                channel.close()
                raise
    except (OSError, TimeoutError) as error:
        raise ChannelEnded(str(error) or "it does not answer") from error
    return channel


def _ready(kind: Kind) -> bytes:
    properties = ((b"Socket-Type", kind.encode()), (b"Identity", b""))
    written = [bytes([len(name)]) + name + struct.pack(">I", len(text)) + text for name, text in properties]
    return b"\x05READY" + b"".join(written)


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return struct.pack(">BQ", flags | _LONG, len(body)) + body


# Parsing stops the whole process, for about as long as a value has parts. An honest message is text with few.
_MOST_PARTS = 250_000
_MOST_OF_HEADER = 64 * 1024  # bytes
_DELIMITER = b"<IDS|MSG>"
_PROTOCOL = "5.3"


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a kernel. `parent` is the id of its request, or "" if it names none."""

    kind: str
    parent: str
    metadata: Mapping[str, Any]
    content: Mapping[str, Any]


def request(key: str, kind: str, message_id: str, session: str, content: Mapping[str, Any]) -> list[bytes]:
    header = {
        "msg_id": message_id,
        "msg_type": kind,
        "session": session,
        "username": "",
        "date": "2000-01-01T00:00:00+00:00",  # required by the protocol, but never used
        "version": _PROTOCOL,
    }
    parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
    signature = hmac.new(key.encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()
    return [_DELIMITER, signature, *parts]


def received(frames: Sequence[bytes]) -> Received | None:
    try:
        start = list(frames).index(_DELIMITER)
        *headers, last = frames[start + 2 : start + 6]
        if any(len(frame) > _MOST_OF_HEADER for frame in headers):
            return None
        header, parent, metadata, content = (_mapping(frame) for frame in (*headers, last))
    except (ValueError, RecursionError):
        return None
    kind, answered = header.get("msg_type"), parent.get("msg_id", "")
    if not isinstance(kind, str) or not isinstance(answered, str):
        return None
    return Received(kind, answered, metadata, content)


def _mapping(frame: bytes) -> dict[str, Any]:
    if sum(map(frame.count, (b",", b"[", b"{"))) > _MOST_PARTS:
        raise ValueError("too many parts")
    value = json.loads(frame)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
