"""What a backend of the browser is: something that searches and reads pages.

Frozen requests in, hits and documents out. A backend raises `BrowserError`s, whose text the model reads;
whatever else it raises is reported to the model as a fault. It must not know of cursors, views or Harmony.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tools.browser.pages.document import Document

if TYPE_CHECKING:
    from tools.browser.network.fetch import Fetcher, Permits


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: str
    limit: int
    snippet_chars: int
    domains: tuple[str, ...] = ()  # only these and their subdomains, where the backend knows of domains
    country: str | None = None  # where the user is, two letters


@dataclass(frozen=True, slots=True)
class SearchHit:
    url: str
    title: str
    snippet: str
    passage: str = ""  # words of the page, verbatim, at which it is best opened


@dataclass(frozen=True, slots=True)
class ReadRequest:
    url: str
    permits: Permits  # to be asked of every address on the way, redirects included
    fetcher: Fetcher  # the one way to the network that is safe for an address that the model chose
    view_source: bool = False


class Backend(Protocol):
    async def search(self, request: SearchRequest) -> Sequence[SearchHit]: ...

    async def read(self, request: ReadRequest) -> Document: ...

    async def close(self) -> None: ...
