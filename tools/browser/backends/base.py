"""The contract of a backend, which searches and reads pages, and whose `BrowserError`s the model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tools.browser.pages.document import Document

if TYPE_CHECKING:
    from tools.browser.network.fetch import Fetcher, Permits


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: str
    limit: int
    snippet_chars: int
    domains: tuple[str, ...] = ()  # only these and their subdomains, if the backend knows domains
    country: str | None = None  # the user's country, two letters
    options: Mapping[str, Any] = field(default_factory=dict)  # of the request's tools


@dataclass(frozen=True, slots=True)
class SearchHit:
    url: str
    title: str
    snippet: str
    passage: str = ""  # verbatim words of the page at which to open it
    details: Mapping[str, Any] = field(default_factory=dict)  # for the API's item


@dataclass(frozen=True, slots=True)
class ReadRequest:
    url: str
    permits: Permits  # must hold for every address on the way, redirects included
    fetcher: Fetcher  # the only safe way to fetch an address that the model chose
    view_source: bool = False
    owner: str = ""  # for whom the page is read
    options: Mapping[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    async def search(self, request: SearchRequest) -> Sequence[SearchHit]: ...

    async def read(self, request: ReadRequest) -> Document: ...

    async def close(self) -> None: ...
