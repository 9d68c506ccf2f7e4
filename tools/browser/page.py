"""Pages, the targets of cursors: numbered, wrapped lines of documents, search hits or matches, with links."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tools.browser.backends.base import SearchHit
from tools.browser.pages.document import Document
from tools.browser.pages.links import domain
from tools.browser.pages.text import find_lines, one_line, without_markers, wrap

MAX_MATCHES: Final = 50
_LINES_OF_A_MATCH: Final = 4
_LINES_ABOVE_A_PASSAGE: Final = 4


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    title: str = ""
    line: int | None = None  # the first line to show of its page
    passage: str = ""  # or the words to find there
    source: bool = False  # leads to the page's source text


@dataclass(frozen=True, slots=True)
class Page:
    kind: Literal["page", "results", "matches"]
    url: str  # "" for search results; for matches, the page that was searched
    title: str
    lines: tuple[str, ...]
    links: tuple[Link, ...] = ()
    link_lines: tuple[int, ...] = ()  # for search results: the line on which each starts
    searched_title: str = ""  # for matches: the page's own title
    source: bool = False  # whether this is the page's source text
    note: str = ""  # a note for the reader, e.g. that only a part was read

    @property
    def chars(self) -> int:
        return sum(map(len, self.lines))

    def cited(self, line: int | None) -> tuple[str, str] | None:
        """The (url, title) that a citation names: for search results, those of the result on the line."""
        if self.kind != "results":
            return self.url, self.searched_title or self.title
        if line is None:
            return None
        before = [link for link, start in zip(self.links, self.link_lines, strict=True) if start <= line]
        return (before[-1].url, before[-1].title) if before else None

    def find_line(self, passage: str) -> int | None:
        """The line shortly above these words."""
        lines = find_lines(without_markers(self.lines), passage)
        return max(0, lines[0] - _LINES_ABOVE_A_PASSAGE) if lines else None


def document_page(document: Document, *, source: bool) -> Page:
    return Page(
        kind="page",
        url=document.url,
        title=one_line(document.title) or domain(document.url),
        # The page's address stands above its text, as on the pages in the model's training.
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
        title = one_line(hit.title).replace("†", "‡") or domain(hit.url)
        shown = one_line(domain(hit.url))
        marker = f"【{number}†{title}†{shown}】" if shown else f"【{number}†{title}】"
        lines += wrap(f"  * {marker} {one_line(hit.snippet, 2_000)}")
    if not hits:
        lines.append("No results were found for this query.")
    links = tuple(Link(hit.url, one_line(hit.title) or domain(hit.url), passage=hit.passage) for hit in hits)
    return Page("results", "", one_line(query), tuple(lines), links, tuple(starts))


def matches_page(page: Page, pattern: str) -> Page:
    """The page that `find` shows: each match with the lines after it, and a link to its place in the page."""
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


def _apart(lines: list[int]) -> list[int]:
    """The matches whose lines are not already shown with an earlier match."""
    starts: list[int] = []
    for line in lines:
        if not starts or line >= starts[-1] + _LINES_OF_A_MATCH:
            starts.append(line)
        if len(starts) == MAX_MATCHES:
            break
    return starts
