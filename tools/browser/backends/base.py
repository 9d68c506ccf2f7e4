"""What a backend of the browser is: something that searches and reads pages.

Frozen requests in, hits and documents out. A backend raises `BrowserError`s, whose text the model reads;
whatever else it raises is reported to the model as a fault. It must not know of cursors, views or Harmony.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tools.browser.fetch import Fetcher

Permits = Callable[[str], bool]
"""Whether the request's domain filter lets a URL through."""


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


@dataclass(frozen=True, slots=True)
class Document:
    """A page as text. `text` is clean (see `text.clean`) and holds 【i†…】 for `links[i]`."""

    url: str  # where it was found in the end
    title: str
    text: str
    links: tuple[str, ...] = ()
    note: str = ""  # for the reader, e.g. that only a part was read


class Backend(Protocol):
    async def search(self, request: SearchRequest) -> Sequence[SearchHit]: ...

    async def read(self, request: ReadRequest) -> Document: ...

    async def close(self) -> None: ...
