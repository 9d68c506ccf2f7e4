"""Files within a request: what of them a text model can read.

In: a file part as a client wrote it. Out: its text where it is text (as base64, a data URL, or plain), or a
note in its place that says what could not be read and why. Nothing is fetched: what a URL elsewhere or a
file's id stands for is not in the request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_PLAIN_CONTROLS = frozenset("\t\n\r\f")


@dataclass(frozen=True, slots=True)
class _Content:
    raw: bytes | None = None  # None: it is not in the request
    kind: str = ""  # as a data URL says
    charset: str = ""  # likewise
    where: str = ""  # a URL elsewhere


def file_text(part: Mapping[str, Any]) -> str:
    """`file_data`, `file_url`, `file_id` and `filename`, as both APIs have them."""
    name = part.get("filename")
    named = f" named {name!r:.200}" if isinstance(name, str) and name else ""
    content = _content(part)
    if content.raw is None:
        return f"[A file{named}{content.where} was attached here. This model cannot open it.]"
    text = _text(content.raw, content.charset)
    if text is None:
        kind = f" of type {content.kind}" if content.kind else ""
        why = "It is not text in UTF-8, and this model reads text only."
        return f"[A file{named}{kind} was attached here. {why}]"
    return f"[The file{named} that was attached here:]\n{text}\n[The end of the file{named}.]"


def _content(part: Mapping[str, Any]) -> _Content:
    for key in ("file_data", "file_url"):
        given = part.get(key)
        if not isinstance(given, str) or not given:
            continue
        if given[:5].lower() == "data:":
            return _of_data_url(given)
        if key == "file_url":
            return _Content(where=f" at {given:.200}")
        return _Content(_from_base64(given) or given.encode("utf-8", "replace"))
    return _Content()


def _of_data_url(url: str) -> _Content:
    head, _, data = url[5:].partition(",")
    kind, *options = (word.strip().lower() for word in head.split(";"))
    raw = unquote_to_bytes(data)
    if "base64" in options:
        raw = _from_base64(data) or raw
    charset = next((word.removeprefix("charset=") for word in options if word.startswith("charset=")), "")
    return _Content(raw, kind[:100], charset)


def _from_base64(text: str) -> bytes | None:
    """None where it is no base64. Line breaks and left-out padding are taken."""
    packed = "".join(text.split())
    if len(packed) < len(text) - text.count("\n") - text.count("\r"):
        return None  # words between spaces
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _text(raw: bytes, charset: str) -> str | None:
    """UTF-8, or what it is said to be: what a few bytes look like is no more than a guess."""
    encoding = next((name for bom, name in _BOMS.items() if raw.startswith(bom)), _codec(charset))
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if any(_tells_binary(char) for char in text) else text


def _codec(charset: str) -> str:
    if charset in ("", "utf-8"):
        return "utf-8"
    from tools.browser.pages.charset import (
        codec_of,  # with all of the browser, which most requests do not need
    )

    return codec_of(charset) or "utf-8"


def _tells_binary(char: str) -> bool:
    """A control, or what stands for bytes that are no character."""
    return (ord(char) < 32 and char not in _PLAIN_CONTROLS) or 0x7F <= ord(char) < 0xA0 or char == "\ufffd"
