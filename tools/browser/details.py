"""`ToolOutput.details` of the browser: the data of a call for the API's `web_search_call` item.

    {"action": {"type": "search", "query": str, "queries": [str], "sources": [{"type": "url", "url": str}]}
             | {"type": "open_page", "url": str | None}
             | {"type": "find_in_page", "pattern": str, "url": str},
     "results": [{"title": str, "url": str, "snippet": str}]}

URLs are those of pages, resolved from cursors and links. A URL is None (for a find: "") if the call named
none that exists, or scrolled search results. Only searches fill `results`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.browser.backends.base import SearchHit
from tools.browser.pages.text import clean

Details = Mapping[str, Any]


def search_details(query: str, hits: Sequence[SearchHit] = ()) -> Details:
    sources = [{"type": "url", "url": hit.url} for hit in hits]
    queries = [query] if query else []
    results = [{"title": clean(hit.title), "url": hit.url, "snippet": clean(hit.snippet)} for hit in hits]
    return {
        "action": {"type": "search", "query": query, "queries": queries, "sources": sources},
        "results": results,
    }


def open_details(url: str | None) -> Details:
    return {"action": {"type": "open_page", "url": url or None}, "results": []}


def find_details(pattern: str, url: str) -> Details:
    return {"action": {"type": "find_in_page", "pattern": pattern, "url": url}, "results": []}


def unread_details(function: str) -> Details:
    """The details of a call with unreadable arguments; {} if even the function is unknown."""
    known = {"search": search_details(""), "open": open_details(None), "find": find_details("", "")}
    return known.get(function, {})
