"""Reads a file that has a name, as text without links, in time and memory that are bounded."""

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, PageBody
from tools.browser.pages.text import without_markers

_TYPES: Final = {
    ".htm": "text/html", ".html": "text/html", ".xhtml": "application/xhtml+xml",
    ".markdown": "text/markdown", ".md": "text/markdown",
}  # fmt: skip


async def read_named(filename: str, data: bytes, owner: str = "") -> Document:
    """The kind follows from the bytes, and for text from the name's ending. Raises `PageError`."""
    kind = _TYPES.get(PurePosixPath(filename).suffix.lower(), "")
    return without_links(await convert(PageBody("", kind, data), owner=owner))


def without_links(document: Document) -> Document:
    return replace(document, text="\n".join(without_markers(document.text.split("\n"))), links=())
