"""Exa: search and pages through its API, with its own client exa-py.

Exa reads the pages, so this machine never connects to them; private addresses must not be sent to Exa either.
exa-py is imported with the first call, on a thread, because the import takes most of a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import httpx

from tools.browser.backends.base import ReadRequest, SearchHit, SearchRequest
from tools.browser.network.client import Lazy
from tools.browser.network.urls import is_web
from tools.browser.pages.convert import convert
from tools.browser.pages.document import MAX_CHARS, BrowserError, Document, PageBody, PageError, SearchError
from tools.browser.pages.text import one_line

if TYPE_CHECKING:
    from exa_py import AsyncExa

DEFAULT_URL: Final = "https://api.exa.ai"

_TAG: Final = re.compile(r"<(?:[a-z][a-z0-9]*[ />]|!doctype)", re.IGNORECASE)

# Exa's reasons for a page that it could not get; see `statuses` in its response.
_REASONS: Final = {
    "CRAWL_NOT_FOUND": "it was not found",
    "CRAWL_TIMEOUT": "its server took too long",
    "SOURCE_NOT_AVAILABLE": "it is not publicly available",
    "UNSUPPORTED_URL": "addresses of this kind cannot be read",
}


class ExaBackend:
    def __init__(self, api_key: str, *, base_url: str = DEFAULT_URL, timeout: float = 30.0) -> None:
        self._client = Lazy(lambda: _connect(api_key, base_url, timeout), lambda client: client.aclose())

    async def search(self, request: SearchRequest) -> Sequence[SearchHit]:
        client = await self._client.get()
        options: dict[str, Any] = {}
        if request.domains:
            options["include_domains"] = list(request.domains)
        if request.country:
            options["user_location"] = request.country
        try:
            answer = await client.search(
                request.query,
                num_results=request.limit,
                contents={"highlights": {"max_characters": request.snippet_chars}},
                **options,
            )
        except (ValueError, httpx.HTTPError, KeyError) as error:
            _refuse(SearchError, "The search failed", error)
        return [_hit(result, request.snippet_chars) for result in answer.results if is_web(result.url)]

    async def read(self, request: ReadRequest) -> Document:
        url = str(request.fetcher.check(request.url))
        client = await self._client.get()
        try:
            answer = await client.get_contents(
                [url], text={"include_html_tags": True, "max_characters": MAX_CHARS}
            )
        except (ValueError, httpx.HTTPError, KeyError) as error:
            _refuse(PageError, "The page could not be read", error)
        if not answer.results or not answer.results[0].text:
            raise PageError(f"The page could not be read: {_reason(answer.statuses)}.")
        result = answer.results[0]
        final = result.url if is_web(result.url) else url
        if not request.permits(final):
            raise PageError("The page leads to a domain that this request does not allow.")
        text = str(result.text)
        # Web pages come with their tags; PDFs and the like have none.
        kind = "text/html" if _TAG.search(text, 0, 20_000) else "text/markdown"
        body = PageBody(final, f"{kind}; charset=utf-8", text.encode("utf-8", "replace"))
        document = await convert(body, view_source=request.view_source, owner=request.owner)
        return replace(document, title=result.title or document.title)

    async def close(self) -> None:
        await self._client.close()


def _connect(api_key: str, base_url: str, timeout: float) -> AsyncExa:
    from exa_py import AsyncExa

    client = AsyncExa(api_key, api_base=base_url, timeout=timeout)
    _ = client.client  # created here, on this thread, because it reads the certificate authorities
    return client


def _hit(result: Any, snippet_chars: int) -> SearchHit:
    snippet = " … ".join(result.highlights or []) or result.summary or result.text or ""
    title = one_line(result.title or "")
    return SearchHit(str(result.url), title or str(result.url), one_line(snippet, snippet_chars))


def _reason(statuses: Sequence[Any] | None) -> str:
    for status in statuses or ():
        if status.status == "error" and status.error is not None:
            code = f" ({status.error.http_status_code})" if status.error.http_status_code else ""
            return f"{_REASONS.get(status.error.tag or '', 'the search service did not get it')}{code}"
    return "the search service has no text of it"


def _refuse(kind: type[BrowserError], what: str, error: Exception) -> NoReturn:
    """Raises an error with the status alone; exa-py's ValueError holds the whole response."""
    text = str(error)
    status = text.removeprefix("Request failed with status code ")[:3]
    if isinstance(error, httpx.TimeoutException):
        reason = "the search service took too long"
    elif isinstance(error, httpx.HTTPError):
        reason = "the search service could not be reached"
    elif status.isdigit() and status != text[:3]:
        reason = f"the search service answered with status {status}"
    else:
        reason = "the search service gave an answer that is not understood"
    raise kind(f"{what}: {reason}.") from error
