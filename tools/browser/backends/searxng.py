"""SearXNG: searches through the JSON API of the operator's instance, and reads pages with the safe fetcher.

The instance's address may be private; those in its results are checked when they are opened.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from tools.browser.backends.base import ReadRequest, SearchHit, SearchRequest
from tools.browser.network.client import Lazy
from tools.browser.network.urls import is_web
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, SearchError
from tools.browser.pages.text import one_line

_MAX_BYTES: Final = 8_000_000
# Engines refuse or ignore more than a few `site:` terms; the results are filtered in any case.
_MAX_SITES: Final = 6


class SearxngBackend:
    def __init__(self, base_url: str, *, timeout: float = 20.0) -> None:
        self._base_url = base_url.rstrip("/").removesuffix("/search")
        self._client = Lazy(lambda: _client(timeout), httpx.AsyncClient.aclose)

    async def search(self, request: SearchRequest) -> Sequence[SearchHit]:
        answer = await self._fetch_results({"q": _with_sites(request), "format": "json", "pageno": "1"})
        results = answer.get("results")
        if not isinstance(results, list):
            raise SearchError("The search failed: the search service gave an answer that is not understood.")
        found = (result for result in results if isinstance(result, Mapping) and is_web(result.get("url")))
        hits = [_hit(result, request.snippet_chars) for result in found]
        if not hits and answer.get("unresponsive_engines"):
            raise SearchError("The search failed: the search engines did not answer. Try again later.")
        return hits

    async def read(self, request: ReadRequest) -> Document:
        body = await request.fetcher.get(request.url, request.permits)
        return await convert(body, view_source=request.view_source, owner=request.owner)

    async def close(self) -> None:
        await self._client.close()

    async def _fetch_results(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        client = await self._client.get()
        try:
            async with client.stream("GET", f"{self._base_url}/search", params=parameters) as response:
                body = await _limited(response)
                status = response.status_code
        except httpx.TimeoutException as error:
            raise SearchError("The search failed: the search service took too long.") from error
        except httpx.HTTPError as error:
            raise SearchError("The search failed: the search service could not be reached.") from error
        if status == 403:  # an instance whose settings do not allow the format
            instance = "the SearXNG instance does not allow `json` in search.formats"
            raise SearchError(f"The search failed: {instance}.")
        if status != 200:
            raise SearchError(f"The search failed: the search service answered with status {status}.")
        try:
            answer = httpx.Response(200, content=body).json()
        except ValueError as error:
            raise SearchError("The search failed: the search service did not answer with JSON.") from error
        return answer if isinstance(answer, dict) else {}


def _client(timeout: float) -> httpx.AsyncClient:
    verify, accept = httpx.create_ssl_context(), {"Accept": "application/json"}
    return httpx.AsyncClient(verify=verify, timeout=timeout, trust_env=False, headers=accept)


async def _limited(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise SearchError("The search failed: the search service's answer is too large.")
    return bytes(body)


def _with_sites(request: SearchRequest) -> str:
    sites = [f"site:{domain}" for domain in request.domains]
    if not sites or len(sites) > _MAX_SITES:
        return request.query
    return f"{request.query} {sites[0] if len(sites) == 1 else '(' + ' OR '.join(sites) + ')'}"


def _hit(result: Mapping[str, Any], snippet_chars: int) -> SearchHit:
    url = str(result["url"])
    title = one_line(str(result.get("title") or ""))
    return SearchHit(url, title or url, one_line(str(result.get("content") or ""), snippet_chars))
