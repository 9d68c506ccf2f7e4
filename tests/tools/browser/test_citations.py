"""Markers of the answer become links however the stream is cut, and cursors name pages of other sessions."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.doubles.tools.shelf import Shelf, call, failure
from tools.browser import BrowserTool
from tools.browser.citations import Citation, CitationRewriter, Piece, Text
from tools.browser.history import MAX_KEPT, kept_pages
from tools.browser.session import BrowserSession

SOURCES = {
    4: ("https://example.com/a", "A page"),
    0: ("https://example.org/(x) y", "Odd [title]"),
    5: ("https://example.com/a|b", 'The "<b>" tag | `HTML`'),
}


def resolve(cursor: int, line: int | None) -> tuple[str, str] | None:
    return SOURCES.get(cursor)


def rewrite(*deltas: str, in_json: bool = False) -> list[Piece]:
    rewriter = CitationRewriter(resolve, in_json=in_json)
    pieces = [piece for delta in deltas for piece in rewriter.feed(delta)]
    return pieces + rewriter.close()


def joined(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def citations(pieces: list[Piece]) -> list[Citation]:
    return [piece for piece in pieces if isinstance(piece, Citation)]


def assert_in_place(pieces: list[Piece]) -> None:
    for citation in citations(pieces):
        assert joined(pieces)[citation.start_index : citation.end_index] == citation.text


@pytest.mark.parametrize(
    "marker",
    [
        "【4†L12-L15】", "【4†L12】", "【4†source】", "【4†L12-15】", "【4†】",
        "【4†L1‑L2】", "【4†A title†example.com】",
    ],
)  # fmt: skip
def test_every_form_of_a_marker_is_replaced_by_a_link(marker: str) -> None:
    pieces = rewrite(f"It is so{marker}.")
    assert joined(pieces) == "It is so ([A page](https://example.com/a))."
    (citation,) = citations(pieces)
    assert (citation.url, citation.title, citation.marker) == ("https://example.com/a", "A page", marker)


@pytest.mark.parametrize(
    "text",
    [
        "[4†L1]", "[4]", "【4】", "【9†L1】", "【x†L1】", "【†L1】", "【4†L1", "【4†L1\n】",
        "【1234567†L1】", "】4†L1【",
        "【 4†L1】", "[[4†L1-L2]]", "【4†" + "x" * 200 + "】", "【４†L1】", "【4†L1【", "†", "【",
    ],
)  # fmt: skip
def test_text_that_is_not_a_marker_or_names_no_page_stays_unchanged(text: str) -> None:
    pieces = rewrite(f"a {text} b")
    assert joined(pieces) == f"a {text} b"
    assert not citations(pieces)


def test_the_cited_line_is_looked_up() -> None:
    lookups: list[tuple[int, int | None]] = []
    CitationRewriter(lambda *cited: lookups.append(cited)).feed("【4†L12-L15】【5†source】【6†L7】")
    assert lookups == [(4, 12), (5, None), (6, 7)]


def test_indices_span_the_replacement_in_characters_of_the_output() -> None:
    pieces = rewrite("Ünïcode 🧠【4†L1】 and【9†L1】 more【0†L2】!")
    text = joined(pieces)
    assert_in_place(pieces)
    assert text == (
        "Ünïcode 🧠 ([A page](https://example.com/a)) and【9†L1】 more"
        " ([Odd \\[title\\]](https://example.org/%28x%29%20y))!"
    )
    assert citations(pieces)[1].url == "https://example.org/(x) y"


def test_a_title_neither_ends_a_table_cell_nor_is_html() -> None:
    pieces = rewrite("| tag【5†L1】 | bold |")
    link = r'[The "\<b>" tag \| \`HTML\`](https://example.com/a%7Cb)'
    assert joined(pieces) == f"| tag ({link}) | bold |"
    assert citations(pieces)[0].title == 'The "<b>" tag | `HTML`'


def test_in_json_a_link_stays_within_its_string() -> None:
    pieces = rewrite('{"a": "So【5†L1', '】, and【0†L1】."}', in_json=True)
    text = joined(pieces)
    assert json.loads(text) == {"a": joined(rewrite("So【5†L1】, and【0†L1】."))}
    assert_in_place(pieces)


def test_text_is_held_back_only_while_it_can_become_a_marker() -> None:
    rewriter = CitationRewriter(resolve)
    for delta, shown in (
        ("plain ", "plain "),
        ("so【", "so"),
        ("4†L1", ""),
        ("】", " ([A page](https://example.com/a))"),
    ):
        assert joined(rewriter.feed(delta)) == shown
    for no_marker in ("【東", "【4x", "【4†L1\n"):
        assert rewriter.feed(no_marker) == [Text(no_marker)]
    assert rewriter.feed("【【4") == [Text("【")]
    assert rewriter.close() == [Text("【4")]


def test_an_endless_marker_is_not_held_back_for_ever() -> None:
    rewriter = CitationRewriter(resolve)
    held = 0
    for _ in range(1_000):
        held += 1 - sum(len(piece.text) for piece in rewriter.feed("【4†"[held] if held < 3 else "x"))
        assert held <= 180


alphabet = st.sampled_from([*"【】†-L \n40912é🧠", "source", "【4†L1-L2】", "【0†L3】", "【7†L1】", "x" * 70])


@given(st.lists(alphabet, max_size=30), st.data())
@example(["【4†", "【4†L1】"], None)
def test_any_cut_of_the_stream_gives_the_same_citations(parts: list[str], data: st.DataObject | None) -> None:
    text = "".join(parts)
    uncut = rewrite(text)
    cuts = [text[i : i + 1] for i in range(len(text))]
    if data is not None:
        points = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        cuts = [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]
    pieces = rewrite(*cuts)
    assert joined(pieces) == joined(uncut)
    assert citations(pieces) == citations(uncut)
    assert_in_place(pieces)


@given(st.lists(alphabet, max_size=30))
def test_undoing_the_replacements_gives_the_original_text(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = rewrite(*parts)
    assert "".join(p.marker if isinstance(p, Citation) else p.text for p in pieces) == text


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
