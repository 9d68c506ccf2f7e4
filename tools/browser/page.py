"""Pages: what a cursor points at. Numbered, wrapped lines, their links, and where each came from.

In go documents, search hits and matches; out come frozen `Page`s. It must not know of cursors, budgets or
networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from tools.browser.backends.base import SearchHit
from tools.browser.pages.document import Document
from tools.browser.pages.text import find_lines, one_line, without_markers, wrap

MAX_MATCHES: Final = 50
_LINES_OF_A_MATCH: Final = 4
_LINES_ABOVE_A_PASSAGE: Final = 4


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    title: str = ""
    line: int | None = None  # where in its page to begin
    passage: str = ""  # or the words to look for there
    source: bool = False  # leads to the page's source text


@dataclass(frozen=True, slots=True)
class Page:
    kind: Literal["page", "results", "matches"]
    url: str  # "" for search results; of matches, the page that was searched
    title: str
    lines: tuple[str, ...]
    links: tuple[Link, ...] = ()
    link_lines: tuple[int, ...] = ()  # of search results: the line on which each begins
    searched_title: str = ""  # of matches: the page's own title
    source: bool = False  # the page's source text in place of the page
    note: str = ""  # what the reader should know, e.g. that only a part was read

    @property
    def chars(self) -> int:
        return sum(map(len, self.lines))

    def cited(self, line: int | None) -> tuple[str, str] | None:
        """What a citation stands for, (url, title): of search results, the one that is on the line."""
        if self.kind != "results":
            return self.url, self.searched_title or self.title
        if line is None:
            return None
        before = [link for link, start in zip(self.links, self.link_lines, strict=True) if start <= line]
        return (before[-1].url, before[-1].title) if before else None

    def line_of(self, passage: str) -> int | None:
        """A little above where these words are."""
        found = find_lines(without_markers(self.lines), passage)
        return max(0, found[0] - _LINES_ABOVE_A_PASSAGE) if found else None


def document_page(document: Document, *, source: bool) -> Page:
    return Page(
        kind="page",
        url=document.url,
        title=one_line(document.title) or _place(document.url),
        # The page's address stands above its text, as on the pages that the model was trained on.
        lines=tuple(wrap(f"\nURL: {one_line(document.url, 2_000)}\n{document.text}")),
        links=tuple(Link(url) for url in document.links),
        source=source,
        note=document.note,
    )


def results_page(query: str, hits: Sequence[SearchHit]) -> Page:
    lines = ["", "URL: ", "# Search Results", ""]
    starts: list[int] = []
    for number, hit in enumerate(hits):
        starts.append(len(lines))
        title = one_line(hit.title).replace("†", "‡") or _place(hit.url)
        place = one_line(_place(hit.url)).replace("†", "‡")
        marker = f"【{number}†{title}†{place}】" if place else f"【{number}†{title}】"
        lines += wrap(f"  * {marker} {one_line(hit.snippet, 2_000)}")
    if not hits:
        lines.append("No results were found for this query.")
    links = tuple(Link(hit.url, one_line(hit.title) or _place(hit.url), passage=hit.passage) for hit in hits)
    return Page("results", "", one_line(query), tuple(lines), links, tuple(starts))


def matches_page(page: Page, pattern: str) -> Page:
    """What `find` shows: each match with the lines after it, and a link to its place in the page."""
    plain = without_markers(page.lines)
    starts = _apart(find_lines(plain, pattern))
    shown = one_line(pattern)
    lines: list[str] = []
    for number, start in enumerate(starts):
        lines += [f"# 【{number}†match at L{start}】", *plain[start : start + _LINES_OF_A_MATCH], ""]
    if not starts:
        lines.append(f"No `find` results for pattern: `{shown}`")
    return Page(
        kind="matches",
        url=page.url,
        title=f"Find results for text: `{shown}` in `{page.title}`",
        lines=tuple(lines),
        links=tuple(
            Link(page.url, page.title, line=max(0, start - _LINES_ABOVE_A_PASSAGE), source=page.source)
            for start in starts
        ),
        searched_title=page.title,
    )


def _apart(found: list[int]) -> list[int]:
    """Matches whose lines are not shown with an earlier one."""
    starts: list[int] = []
    for line in found:
        if not starts or line >= starts[-1] + _LINES_OF_A_MATCH:
            starts.append(line)
        if len(starts) == MAX_MATCHES:
            break
    return starts


def _place(url: str) -> str:
    """The domain of a web page; a local file has none."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""
