"""Reads a web page as a document: fetches it safely and converts it off the event loop.

For backends that only search. Takes a `ReadRequest`, returns a `Document` or raises `PageError`.
"""

from __future__ import annotations

from tools.browser.backends.base import ReadRequest
from tools.browser.pages.body import PageBody
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document
from tools.browser.pages.html import prepare


async def read_web(request: ReadRequest) -> Document:
    prepare()
    fetched = await request.fetcher.get(request.url, request.permits)
    body = PageBody(fetched.url, fetched.content_type, fetched.body, fetched.cut)
    return await convert(body, view_source=request.view_source)
