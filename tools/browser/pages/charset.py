"""Decodes any bytes as browsers do: by mark, header, declaration in the document, then by a guess."""

import codecs
import re
from typing import Final

from charset_normalizer import from_bytes

from tools.charsets import find_codec

_SAMPLE: Final = 16_384  # bytes for a guess, which takes milliseconds per kilobyte
_DECLARED_WITHIN: Final = 4_096

_MARKS: Final = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
_META: Final = re.compile(rb"""(?i)<meta[^>]{0,400}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""")
_XML: Final = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_:.-]{2,40})""")
_HEADER: Final = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)


def decode(body: bytes, content_type: str = "") -> str:
    for encoding, mark in _MARKS.items():
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    encoding = _declared(content_type, body) or _looks_like(body)
    return body.decode(encoding, "replace")


def _declared(content_type: str, body: bytes) -> str | None:
    header = _HEADER.search(content_type)
    if header and (encoding := find_codec(header[1])):
        return encoding
    start = body[:_DECLARED_WITHIN]
    declaration = _META.search(start) or _XML.match(start.lstrip())
    encoding = find_codec(declaration[1].decode("ascii")) if declaration else None
    # A declaration that can be read as ASCII is not in UTF-16, whatever it states.
    return "utf-8" if encoding and encoding.startswith(("utf_16", "utf_32")) else encoding


def _looks_like(body: bytes) -> str:
    try:  # a character cut off at the very end does not count against it
        codecs.getincrementaldecoder("utf-8")().decode(body)
        return "utf-8"
    except UnicodeDecodeError:
        best = from_bytes(body[:_SAMPLE]).best()
        return find_codec(best.encoding) or "cp1252" if best else "cp1252"
