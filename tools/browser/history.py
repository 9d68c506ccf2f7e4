"""The pages that one conversation has viewed, by cursor, counted from 0 or from an earlier session's end.

Texts of old pages are dropped when together they grow too large; their URLs and titles stay, so that
citations resolve. Pages of earlier sessions, perhaps of another machine, take the places that the model knows
them by. They are kept as plain records: search results whole, as no request brings them again; other pages by
address and title, to be read again when the model looks at them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.browser.page import Link, Page
from tools.browser.pages.document import UsageError

MAX_CHARS: Final = 16_000_000
MAX_KEPT: Final = 64  # pages of one conversation, the newest
Record = dict[str, Any]


@dataclass(slots=True)
class _Entry:
    page: Page | None  # None once dropped
    url: str
    title: str
    unread: Page | None = None  # of an earlier session: to be read again


class PageHistory:
    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._entries: dict[int, _Entry] = {}  # by cursor, in order; the others' pages are gone
        self.next_cursor = 0  # of the next page to be added
        self._final: dict[str, str] = {}  # the final address for each address
        self._chars: dict[int, int] = {}  # of each kept page, by its identity, because views share pages

    def continue_from(self, cursor: int, kept: Mapping[int, Page]) -> None:
        """Reserves lower cursors, which the model has seen. `kept` are the conversation's pages so far."""
        self.next_cursor = max(self.next_cursor, cursor)
        for number, page in kept.items():
            entry = self._entries.get(number)
            if entry is None or (entry.url, entry.title) != (page.url, page.title):
                results = page if page.kind == "results" else None
                self._entries[number] = _Entry(results, page.url, page.title, None if results else page)
                self._count(results)
        self._entries = dict(sorted(self._entries.items()))

    def add(self, page: Page) -> int:
        self._entries[self.next_cursor] = _Entry(page, page.url, page.searched_title or page.title)
        self.next_cursor += 1
        self._count(page)
        self._drop_old()
        return self.next_cursor - 1

    def unread(self, cursor: int | None) -> tuple[int, Page] | None:
        """The page of an earlier session that a cursor (None: the newest) names, if it must be read again."""
        number = self.next_cursor - 1 if cursor is None else cursor
        entry = self._entries.get(number)
        return None if entry is None or entry.unread is None else (number, entry.unread)

    def read_again(self, cursor: int, page: Page) -> None:
        """The address and title stay those that the model has seen."""
        entry = self._entries[cursor]
        entry.page, entry.unread = page, None
        self._count(page)
        self._drop_old()

    def records_since(self, cursor: int) -> list[Record]:
        """What another session needs to continue from the pages that were added since."""
        pages = ((number, entry.page or entry.unread) for number, entry in self._entries.items())
        return [_record(number, page) for number, page in pages if page is not None and number >= cursor]

    def page(self, cursor: int | None) -> Page:
        """The page at a cursor, or the newest for None; raises `UsageError` if there is none."""
        if not self._entries:
            raise UsageError("No page is open yet: search first, or open a URL.")
        number = self.next_cursor - 1 if cursor is None else cursor
        if number >= self.next_cursor or number < 0:
            first = min(self._entries)
            known = f"the cursors are {first} to {self.next_cursor - 1}"
            raise UsageError(f"There is no cursor {cursor}: {known}.")
        entry = self._entries.get(number)
        if entry is None:
            raise UsageError(f"The page at cursor {number} is no longer kept: search again, or open its URL.")
        if entry.page is None:
            raise UsageError(f"The page at cursor {number} is no longer kept: open {entry.url} again.")
        return entry.page

    def redirected(self, url: str, at: str) -> None:
        """Remembers the final address: after redirects, in another spelling, or without its fragment."""
        if url != at:
            self._final[url] = at

    def opened(self, url: str, *, source: bool) -> Page | None:
        """The newest page read from this URL."""
        url = self._final.get(url, url)
        for entry in reversed(self._entries.values()):
            page = entry.page
            if page and page.kind == "page" and page.url == url and page.source == source:
                return page
        return None

    def resolve(self, cursor: int, line: int | None = None) -> tuple[str, str] | None:
        """The (url, title) that a citation of this cursor names."""
        entry = self._entries.get(cursor)
        if entry is None:
            return None
        if entry.page is not None:
            return entry.page.cited(line)
        return entry.url, entry.title

    def _count(self, page: Page | None) -> None:
        if page is not None:
            self._chars[id(page)] = page.chars

    def _drop_old(self) -> None:
        """Drops the oldest texts; never the newest, nor search results, which are small and cited by line."""
        entries = list(self._entries.values())
        newest = entries[-1].page
        for entry in entries:
            if sum(self._chars.values()) <= self._max_chars:
                return
            gone = entry.page
            if gone is None or gone is newest or gone.kind == "results":
                continue
            for other in entries:
                if other.page is gone:
                    other.page = None
            del self._chars[id(gone)]


def _record(cursor: int, page: Page) -> Record:
    about = {"cursor": cursor, "kind": page.kind, "title": page.searched_title or page.title}
    if page.kind != "results":
        return {**about, "url": page.url, "source": page.source}
    links = [[link.url, link.title, link.passage] for link in page.links]
    return {**about, "lines": list(page.lines), "links": links, "link_lines": list(page.link_lines)}


def kept_pages(records: Iterable[Any]) -> dict[int, Page]:
    """The newest pages by cursor; those without lines have yet to be read. Skips unreadable records."""
    pages: dict[int, Page] = {}
    for record in records:
        try:
            pages[int(record["cursor"])] = _page(record)
        except (KeyError, TypeError, ValueError):
            continue
    return {cursor: pages[cursor] for cursor in sorted(pages)[-MAX_KEPT:]}


def _page(record: Mapping[str, Any]) -> Page:
    if record["kind"] == "results":
        links = tuple(Link(str(url), str(title), passage=str(at)) for url, title, at in record["links"])
        lines, starts = tuple(map(str, record["lines"])), tuple(map(int, record["link_lines"]))
        if len(starts) != len(links):
            raise ValueError("each link has a line")
        return Page("results", "", str(record["title"]), lines, links, starts)
    return Page("page", str(record["url"]), str(record["title"]), (), source=bool(record.get("source")))
