"""Decodes bytes as browsers do: by mark, header, declaration in the document, then by a guess from the bytes.

Pure. Any bytes give some text, and no label from outside reaches a codec that is not a plain text encoding.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from charset_normalizer import from_bytes

_SAMPLE: Final = 16_384  # bytes for a guess, which takes milliseconds per kilobyte
_DECLARED_WITHIN: Final = 4_096

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# A label on a page often means the larger encoding of the same family.
_MEANT: Final = {
    "ascii": "cp1252", "iso8859_1": "cp1252", "iso8859_9": "cp1254", "tis_620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
# Codecs that Python counts as text but that no page uses as a charset.
_NO_CHARSET: Final = (
    "unicode_escape",
    "raw_unicode_escape",
    "idna",
    "punycode",
    "undefined",
    "utf_7",
    "mbcs",
    "oem",
)

_META: Final = re.compile(
    rb"""<meta[^>]{0,400}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE
)
_XML: Final = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_:.-]{2,40})""")
_HEADER: Final = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_:.-]{2,40})""", re.IGNORECASE)


def decode(body: bytes, content_type: str = "") -> str:
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    encoding = _declared(content_type, body) or _looks_like(body)
    return body.decode(encoding, "replace")


def _declared(content_type: str, body: bytes) -> str | None:
    header = _HEADER.search(content_type)
    if header and (encoding := codec_of(header[1])):
        return encoding
    start = body[:_DECLARED_WITHIN]
    found = _META.search(start) or _XML.match(start.lstrip())
    encoding = codec_of(found[1].decode("ascii")) if found else None
    # A declaration that can be read as ASCII is not in UTF-16, whatever it states.
    return "utf-8" if encoding and encoding.startswith(("utf_16", "utf_32")) else encoding


def codec_of(label: str) -> str | None:
    """The codec for a label; None if it is not a plain text encoding."""
    try:
        b"x".decode(label, "replace")  # LookupError for codecs that do not make text
    except (LookupError, ValueError):  # the latter of a label with a NUL
        return None
    name = codecs.lookup(label).name.replace("-", "_")
    return None if name in _NO_CHARSET else _MEANT.get(name, name)


def _looks_like(body: bytes) -> str:
    if _is_utf8(body):
        return "utf-8"
    best = from_bytes(body[:_SAMPLE]).best()
    return codec_of(best.encoding) or "cp1252" if best else "cp1252"


def _is_utf8(body: bytes) -> bool:
    """Whether all of it is UTF-8; a character cut off at the very end does not count against it."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return False
    return True
