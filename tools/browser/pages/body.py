"""Converts bodies of markup or plain text to documents, in this process.

Takes a `PageBody` and its kind, returns a `Document`. Slow for large bodies of HTML: see html.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tools.browser.pages.charset import decode
from tools.browser.pages.document import Document
from tools.browser.pages.html_text import HtmlText, html_to_text
from tools.browser.pages.markdown_text import markdown_to_text
from tools.browser.pages.text import clean

Kind = Literal["html", "markdown", "text", "pdf"]

MAX_CHARS: Final = 2_000_000  # of a page's text, or about 500 views
_CUT: Final = "Only the first part of this page was read: it is too long."
_EMPTY: Final = "This page has no text that can be read. Pictures are not shown, and scripts are not run."


@dataclass(frozen=True, slots=True)
class PageBody:
    """The input of a conversion."""

    url: str
    content_type: str
    data: bytes
    cut: bool = False


def convert_text(body: PageBody, kind: Kind, *, view_source: bool = False) -> Document:
    text = decode(body.data, body.content_type)
    if view_source or kind == "text":
        return document_of(body, "", clean(text[: MAX_CHARS + 1]))
    if kind == "markdown":
        return _linked(body, markdown_to_text(text[: MAX_CHARS + 1], body.url))
    read = html_to_text(text, body.url)
    return _linked(body, read, note="" if read.text.strip() else _EMPTY)


def _linked(body: PageBody, read: HtmlText, note: str = "") -> Document:
    return document_of(body, read.title, read.text, read.links, note)


def document_of(
    body: PageBody, title: str, text: str, links: tuple[str, ...] = (), note: str = ""
) -> Document:
    if body.cut or len(text) > MAX_CHARS:
        note = _CUT
    return Document(body.url, title, text[:MAX_CHARS], links, note)
