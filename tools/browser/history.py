"""What one conversation has looked at: pages by cursor, one for every view, counted from 0 or on from an
earlier session's.

In go pages, out come cursors, and pages for cursors. The texts of old pages are let go when together they
grow too large; where they came from is kept, so that citations resolve for as long as the conversation
lives. It must not know of calls or networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tools.browser.page import Page
from tools.browser.pages.errors import UsageError

MAX_CHARS: Final = 16_000_000


@dataclass(slots=True)
class _Entry:
    page: Page | None  # None once let go
    url: str
    title: str


class History:
    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._entries: list[_Entry] = []
        self._first = 0  # cursors below are those of an earlier session, whose pages are gone
        self._found_at: dict[str, str] = {}  # where an address led in the end
        self._chars: dict[int, int] = {}  # of each page held, by its identity: views share pages

    def begin_at(self, cursor: int) -> None:
        """The model has read of cursors below: none of them may come to stand for another page."""
        if not self._entries:
            self._first = cursor

    @property
    def next_cursor(self) -> int:
        """The cursor that the next page added will have."""
        return self._first + len(self._entries)

    def add(self, page: Page) -> int:
        self._entries.append(_Entry(page, page.url, page.searched_title or page.title))
        self._chars[id(page)] = page.chars
        self._let_go()
        return self.next_cursor - 1

    def page(self, cursor: int | None) -> Page:
        """The page at a cursor, the newest for None; UsageError where there is none."""
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
        """Remembers where an address led: after redirects, in another spelling, without its fragment."""
        if url != at:
            self._found_at[url] = at

    def opened(self, url: str, *, source: bool) -> Page | None:
        """The newest page that was read from this URL."""
        url = self._found_at.get(url, url)
        for entry in reversed(self._entries):
            page = entry.page
            if page and page.kind == "page" and page.url == url and page.source == source:
                return page
        return None

    def resolve(self, cursor: int, line: int | None = None) -> tuple[str, str] | None:
        """What a citation of this cursor stands for: (url, title)."""
        if not self._first <= cursor < self.next_cursor:
            return None
        entry = self._entries[cursor - self._first]
        if entry.page is not None:
            return entry.page.cited(line)
        return entry.url, entry.title

    def _let_go(self) -> None:
        """The oldest first; never the newest, nor search results, which are small and cited by line."""
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
