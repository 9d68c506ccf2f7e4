"""A session continues from the pages of another one, which may have been on another machine."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.doubles.tools.shelf import Shelf, call, failure
from tools.browser import BrowserTool
from tools.browser.history import MAX_KEPT, kept_pages
from tools.browser.session import BrowserSession


async def viewed(session: BrowserSession) -> Mapping[str, Any]:
    """The options of later calls, after a search (0), a page (1) and a find (2)."""
    await call(session, "search", query="pages")
    await call(session, "open", id=1)
    await call(session, "find", pattern="page")
    records = json.loads(json.dumps(session.records_since(0)))
    return {"first_cursor": 3, "pages": records}


async def test_cursors_of_another_session_name_the_same_pages(shelf: Shelf, session: BrowserSession) -> None:
    options = await viewed(session)
    there = BrowserTool(shelf).open()
    read = len(shelf.reads)
    link = await call(there, "open", options, cursor=0, id=2)
    assert link.text.startswith("[3] "), "links of the search results lead on, and cursors continue"
    assert link.details["action"]["url"] == "https://b.example/three"
    again = await call(there, "open", options, cursor=1, loc=300)
    assert "line 300 of the long page" in again.text
    assert shelf.reads[read:] == ["https://b.example/three", "https://a.example/two"]
    results = await call(there, "open", options, cursor=0)
    here = await call(session, "open", options, cursor=0)
    assert results.text.partition("]")[2] == here.text.partition("]")[2]
    for cursor, line in ((0, 4), (0, 6), (0, None), (1, 0), (2, 0)):
        assert there.resolve(cursor, line) == session.resolve(cursor, line)
    matches = await call(BrowserTool(shelf).open(), "find", options, pattern="line 42 of")
    assert "line 42 of the long page" in matches.text


async def test_a_page_that_cannot_be_read_again_says_why(shelf: Shelf, session: BrowserSession) -> None:
    gone = {"cursor": 0, "kind": "page", "url": "https://a.example/gone", "title": "Gone"}
    options = {"first_cursor": 1, "pages": [gone]}
    there = BrowserTool(shelf).open()
    assert "404" in await failure(there, "find", options, cursor=0, pattern="x")
    assert there.resolve(0) is None or there.resolve(0) == ("https://a.example/gone", "Gone")
    await failure(there, "open", {**options, "filters": {"allowed_domains": ["b.example"]}}, cursor=0)


async def test_a_session_takes_over_what_another_server_added(shelf: Shelf, session: BrowserSession) -> None:
    first = await viewed(session)
    there = BrowserTool(shelf).open()
    await call(there, "open", first, id="https://a.example/one")
    options = {"first_cursor": 4, "pages": [*first["pages"], *there.records_since(3)]}
    back = await call(session, "open", options, cursor=3)
    assert "The needle is here." in back.text
    assert back.text.startswith("[4] ")


async def test_a_branch_brings_its_own_pages(shelf: Shelf, session: BrowserSession) -> None:
    """Two branches of a conversation share a session here, and one of them continued elsewhere."""
    options = await viewed(session)
    other = {"cursor": 1, "kind": "page", "url": "https://a.example/one", "title": "Page one"}
    page = await call(session, "open", {**options, "pages": [other]}, cursor=1)
    assert "The needle is here." in page.text
    assert "line 1 of the long page" in (await call(session, "open", options, cursor=1)).text


RESULTS = {"cursor": 1, "kind": "results", "title": "t", "lines": [], "links": [], "link_lines": []}


@pytest.mark.parametrize(
    "record",
    [
        *(None, 7, {}, {"cursor": "a"}, {"cursor": 1, "kind": "page"}, {**RESULTS, "lines": 3}),
        *({**RESULTS, "link_lines": [1], "links": links} for links in ([["u"]], [])),
    ],
)
def test_an_unreadable_record_is_left_out(record: Any) -> None:
    good = {"cursor": 2, "kind": "page", "url": "https://a.example/", "title": "A"}
    assert list(kept_pages([record, good])) == [2]


def test_only_the_newest_pages_are_kept() -> None:
    pages = [{"cursor": n, "kind": "page", "url": "https://a.example/", "title": "A"} for n in range(500)]
    assert list(kept_pages(pages)) == list(range(500 - MAX_KEPT, 500))
