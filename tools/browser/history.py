"""The pages that one conversation has viewed, by cursor, counted from 0 or from an earlier session's end.

Takes pages and returns cursors, and pages for cursors. Texts of old pages are dropped when together they grow
too large. Their URLs and titles are kept, so that citations resolve as long as the conversation lives. It
must not know calls or networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tools.browser.page import Page
from tools.browser.pages.errors import UsageError

MAX_CHARS: Final = 16_000_000


@dataclass(slots=True)
class _Entry:
    page: Page | None  # None once dropped
    url: str
    title: str


class PageHistory:
    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._entries: list[_Entry] = []
        self._first = 0  # cursors below belong to an earlier session, whose pages are gone
        self._found_at: dict[str, str] = {}  # the final address for each address
        self._chars: dict[int, int] = {}  # of each kept page, by its identity, because views share pages

    def begin_at(self, cursor: int) -> None:
        """Reserves all lower cursors: the model has seen them, and they must not name other pages."""
        if not self._entries:
            self._first = cursor

    @property
    def next_cursor(self) -> int:
        """The cursor of the next page to be added."""
        return self._first + len(self._entries)

    def add(self, page: Page) -> int:
        self._entries.append(_Entry(page, page.url, page.searched_title or page.title))
        self._chars[id(page)] = page.chars
        self._drop_old()
        return self.next_cursor - 1

    def page(self, cursor: int | None) -> Page:
        """The page at a cursor, or the newest for None; raises `UsageError` if there is none."""
        if not self._entries:
            raise UsageError("No page is open yet: search first, or open a URL.")
        number = self.next_cursor - 1 if cursor is None else cursor
        if number < self._first:
            raise UsageError(f"The page at cursor {number} is no longer kept: search again, or open its URL.")
        if number >= self.next_cursor:
            raise UsageError(
                f"There is no cursor {cursor}: the cursors are {self._first} to {self.next_cursor - 1}."
            )
        entry = self._entries[number - self._first]
        if entry.page is None:
            raise UsageError(f"The page at cursor {number} is no longer kept: open {entry.url} again.")
        return entry.page

    def found(self, url: str, at: str) -> None:
        """Remembers the final address: after redirects, in another spelling, or without its fragment."""
        if url != at:
            self._found_at[url] = at

    def opened(self, url: str, *, source: bool) -> Page | None:
        """The newest page read from this URL."""
        url = self._found_at.get(url, url)
        for entry in reversed(self._entries):
            page = entry.page
            if page and page.kind == "page" and page.url == url and page.source == source:
                return page
        return None

    def resolve(self, cursor: int, line: int | None = None) -> tuple[str, str] | None:
        """The (url, title) that a citation of this cursor names."""
        if not self._first <= cursor < self.next_cursor:
            return None
        entry = self._entries[cursor - self._first]
        if entry.page is not None:
            return entry.page.cited(line)
        return entry.url, entry.title

    def _drop_old(self) -> None:
        """Drops the oldest texts; never the newest, nor search results, which are small and cited by line."""
        newest = self._entries[-1].page
        for entry in self._entries:
            if sum(self._chars.values()) <= self._max_chars:
                return
            gone = entry.page
            if gone is None or gone is newest or gone.kind == "results":
                continue
            for other in self._entries:
                if other.page is gone:
                    other.page = None
            del self._chars[id(gone)]
