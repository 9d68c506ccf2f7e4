"""Converts bodies, fetched or read from a folder, to documents: text with links.

Raises `PageError` if there is no text. All but plain text is converted in processes of their own
(processes.py), where `convert_body` runs; plain text takes little time. selectolax (MIT) parses HTML by its
standard, as html2text, which made the pages in the model's training, is under the GPL; pypdf (BSD) reads PDF.
"""

import asyncio
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from tools.browser.pages.body import convert_body
from tools.browser.pages.document import Document, Kind, PageBody, PageError
from tools.browser.pages.office_text import OLE, ZIP
from tools.browser.pages.processes import read_page, read_page_blocking
from tools.browser.pages.text import clean, without_markers

_HTML_TYPES: Final = ("text/html", "application/xhtml+xml")
_MARKDOWN_TYPES: Final = ("text/markdown", "text/x-markdown")
_TEXT_TYPES: Final = (
    "application/json", "application/ld+json", "application/xml", "application/javascript",
    "application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/x-sh",
    "application/x-ndjson", "application/graphql", "message/rfc822",
)  # fmt: skip
_NAMED: Final = {
    ".htm": "text/html", ".html": "text/html", ".xhtml": "application/xhtml+xml",
    ".markdown": "text/markdown", ".md": "text/markdown",
}  # fmt: skip
_UNSPECIFIC: Final = ("", "application/octet-stream", "binary/octet-stream", "application/unknown")


async def convert(body: PageBody, *, view_source: bool = False, owner: str = "") -> Document:
    """`owner`: for whom, as one's slow pages do not hold up another's."""
    kind = find_kind(body.content_type, body.data)
    if _takes_little_time(body, kind, view_source=view_source):
        return await asyncio.to_thread(convert_body, body, kind, view_source=view_source)
    return await read_page(body, kind, owner)


def convert_blocking(body: PageBody, kind: Kind, *, view_source: bool = False) -> Document:
    """The same for a thread without an event loop."""
    if _takes_little_time(body, kind, view_source=view_source):
        return convert_body(body, kind, view_source=view_source)
    return read_page_blocking(body, kind)


async def read_named(filename: str, data: bytes, owner: str = "") -> Document:
    """A file, as text without links. Its kind follows from the bytes, for text from the name's ending."""
    kind = _NAMED.get(PurePosixPath(filename).suffix.lower(), "")
    return without_links(await convert(PageBody("", kind, data), owner=owner))


def without_links(document: Document) -> Document:
    return replace(document, text="\n".join(without_markers(document.text.split("\n"))), links=())


def find_kind(content_type: str, data: bytes) -> Kind:
    """Decides by the declared type, or by the bytes if that is unspecific or impossible."""
    kind = content_type.partition(";")[0].strip().lower()
    if data.startswith(b"%PDF-") or kind == "application/pdf":
        return "pdf"
    if data.startswith((ZIP, OLE)):
        return "office"
    if kind in _HTML_TYPES:
        return "html"
    if kind in _MARKDOWN_TYPES:
        return "markdown"
    textual = kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))
    if kind not in _UNSPECIFIC and not textual:
        raise PageError(f"This is not a page of text: its content is of type {clean(kind)[:80]}.")
    if b"\x00" in data[:8_192] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):  # marks of UTF-16
        raise PageError("This is not a page of text: its content is binary.")
    start = data[:1_024].lstrip().lower()
    return "html" if kind in _UNSPECIFIC and start.startswith((b"<!doctype html", b"<html")) else "text"


def _takes_little_time(body: PageBody, kind: Kind, *, view_source: bool) -> bool:
    """Whether this process may convert it; refuses a file that cannot be converted at all."""
    if kind not in ("pdf", "office"):
        return view_source or kind == "text"
    what = "PDF" if kind == "pdf" else "document"
    if view_source:
        raise PageError(f"A {what} has no source to view: open it without view_source.")
    if body.cut:
        raise PageError(f"This {what} is too large to be read.")
    return False
