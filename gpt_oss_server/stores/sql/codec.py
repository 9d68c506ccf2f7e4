"""Records as bytes, and texts as keys of a table.

Bodies are JSON in bytes, as a database's own JSON and text refuse or change some characters. Token ids are
little-endian int32.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.sealing import packed_tokens, unpacked_tokens

_LENGTH = struct.Struct("<I")
_SEGMENT = ("channel", "recipient", "text", "stands_for", "tools")
_CALLS = ("recipients", "approvals", "answered")
_LONGEST_KEY = 200  # an index of Postgres refuses keys of 2,700 bytes


def to_bytes(value: object) -> bytes:
    try:
        return to_json(value)
    except PydanticSerializationError:  # a lone surrogate, which UTF-8 cannot encode
        return json.dumps(value).encode("ascii")


def from_bytes(content: bytes) -> Any:
    try:
        return from_json(content)
    except ValueError:
        return json.loads(content)


def encode_items(items: Iterable[object], before: int = 0) -> tuple[bytes, bytes]:
    """The items as a list in JSON, and where each begins and the last ends, after `before` other bytes."""
    encoded = [to_bytes(item) for item in items]
    lengths = (len(item) + 1 for item in encoded)  # with the comma or the bracket after it
    places = accumulate(lengths, initial=before + 1)
    return b"[" + b",".join(encoded) + b"]", packed_tokens(places)


def key_of(text: str) -> str:
    """The text as a key. Clients choose the ids of items, which may be long or have a NUL."""
    if len(text) <= _LONGEST_KEY and text.isprintable() and not text.startswith("\\"):
        return text
    return "\\" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode_addition(added: Addition) -> bytes:
    """The length of the JSON, the JSON, and the tokens of all segments."""
    heads = [(part.role, len(part.tokens), _set_fields(part, _SEGMENT)) for part in added.segments]
    encoded = to_bytes({"segments": heads, **_set_fields(added, _CALLS)})
    tokens = [packed_tokens(part.tokens) for part in added.segments]
    return b"".join((_LENGTH.pack(len(encoded)), encoded, *tokens))


def _set_fields(record: object, names: Sequence[str]) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    fields = {name: getattr(record, name) for name in names}
    return {name: value for name, value in fields.items() if value or value == ""}


def decode_addition(content: bytes) -> Addition:
    [length] = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    head = from_bytes(content[_LENGTH.size : at])
    segments: list[Segment] = []
    for role, count, fields in head["segments"]:
        end = at + 4 * count
        if "tools" in fields:
            fields["tools"] = tuple(fields["tools"])
        segments.append(Segment(role, unpacked_tokens(content[at:end]), **fields))
        at = end
    approvals = {key: (call[0], call[1]) for key, call in head.get("approvals", {}).items()}
    answered = tuple(head.get("answered", ()))
    return Addition(tuple(segments), head.get("recipients", {}), approvals, answered)


def pack(parts: Sequence[bytes]) -> bytes:
    """Joins byte strings, each after its length."""
    return b"".join(piece for part in parts for piece in (_LENGTH.pack(len(part)), part))


def unpack(content: bytes) -> list[bytes]:
    parts: list[bytes] = []
    at = 0
    while at < len(content):
        [length] = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        parts.append(content[at : at + length])
        at += length
    return parts
