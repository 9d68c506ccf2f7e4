"""Jupyter's messages as frames: what this process sends to a kernel and reads from it.

A kernel runs hostile code, so nothing about a received frame is trusted: not its shape, its types, or its
signature (code in the box has the key). It must not know sockets.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
