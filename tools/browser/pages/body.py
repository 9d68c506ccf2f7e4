"""Converts a body to a document, in this process. Any kind but plain text may be slow: see processes.py."""

from dataclasses import replace
from typing import Final

from tools.browser.pages.charset import decode
from tools.browser.pages.document import MAX_CHARS, Document, Kind, PageBody
from tools.browser.pages.html_text import html_to_text
from tools.browser.pages.markdown_text import markdown_to_text
from tools.browser.pages.office_text import office_to_text
from tools.browser.pages.pdf_text import pdf_to_text
from tools.browser.pages.text import clean

_CUT: Final = "Only the first part of this page was read: it is too long."
_EMPTY: Final = "This page has no text that can be read. Pictures are not shown, and scripts are not run."


def convert_body(body: PageBody, kind: Kind, *, view_source: bool = False) -> Document:
    document = _converted(body, kind, view_source=view_source)
    if body.cut or len(document.text) > MAX_CHARS:
        return replace(document, text=document.text[:MAX_CHARS], note=_CUT)
    return document


def _converted(body: PageBody, kind: Kind, *, view_source: bool) -> Document:
    if kind == "pdf":
        return pdf_to_text(body.data, body.url)
    if kind == "office":
        return office_to_text(body.data, body.url)
    text = decode(body.data, body.content_type)
    if view_source or kind == "text":
        return Document(body.url, "", clean(text[: MAX_CHARS + 1]))
    if kind == "markdown":
        return markdown_to_text(text[: MAX_CHARS + 1], body.url)
    document = html_to_text(text, body.url)
    return document if document.text.strip() else replace(document, note=_EMPTY)
