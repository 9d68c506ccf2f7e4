"""Pages as plain records, for conversations that outlive their sessions or continue on another machine.

Takes pages by cursor and returns records of text and numbers, and pages again from records. Search results
are kept whole, as no request brings them again. Of other pages, the address and the title are kept: the text
is read again where the model looks at it. What cannot be read is left out: records may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tools.browser.page import Link, Page

MOST: Final = 64  # pages of one conversation, the newest
Record = dict[str, Any]


def record_of(cursor: int, page: Page) -> Record:
    about = {"cursor": cursor, "kind": page.kind, "title": page.searched_title or page.title}
    if page.kind != "results":
        return {**about, "url": page.url, "source": page.source}
    links = [[link.url, link.title, link.passage] for link in page.links]
    return {**about, "lines": list(page.lines), "links": links, "link_lines": list(page.link_lines)}


def kept_pages(records: Iterable[Any]) -> dict[int, Page]:
    """The newest pages by cursor. Those without lines have yet to be read again."""
    found: dict[int, Page] = {}
    for record in records:
        try:
            found[int(record["cursor"])] = _page(record)
        except (KeyError, TypeError, ValueError):
            continue
    return {cursor: found[cursor] for cursor in sorted(found)[-MOST:]}


def _page(record: Mapping[str, Any]) -> Page:
    if record["kind"] == "results":
        links = tuple(
            Link(str(url), str(title), passage=str(passage)) for url, title, passage in record["links"]
        )
        lines, starts = tuple(map(str, record["lines"])), tuple(map(int, record["link_lines"]))
        if len(starts) != len(links):
            raise ValueError("each link has a line")
        return Page("results", "", str(record["title"]), lines, links, starts)
    return Page("page", str(record["url"]), str(record["title"]), (), source=bool(record.get("source")))
