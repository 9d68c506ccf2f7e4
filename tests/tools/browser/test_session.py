"""A conversation with the browser: the text for the model, the data for the API, and every call answered."""

import asyncio
import json
import re
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_harmony import ToolNamespaceConfig  # type: ignore[import-untyped, unused-ignore]

from tests.doubles.tools.shelf import Shelf, call, failure
from tools.browser import BrowserTool
from tools.browser.history import PageHistory
from tools.browser.page import document_page
from tools.browser.pages.document import Document
from tools.browser.session import BROWSER, BrowserSession
from tools.browser.view import UNTRUSTED, estimate_tokens
from tools.tool import ToolCall


def test_the_declaration_is_harmonys_own() -> None:
    functions = [asdict(function) for function in BROWSER.functions]
    declared = {"name": BROWSER.namespace, "description": BROWSER.description, "tools": functions}
    assert declared == ToolNamespaceConfig.browser().model_dump()


PAGES = ("a.example/one", "a.example/two", "b.example/three")


async def test_search_results_are_shown_in_the_form_the_model_was_trained_on(session: BrowserSession) -> None:
    output = await call(session, "search", query="pages")
    assert output.text == (
        f"[0] pages\n**viewing lines [0 - 10] of 10**\n{UNTRUSTED}\n\n"
        "L0: \nL1: URL: \nL2: # Search Results\nL3: \n"
        "L4:   * 【0†Page one†a.example】 a snippet of one\n"
        "L5:   * 【1†Page two†a.example】 two\n"
        "L6:   * 【2†b.example†b.example】 three three three three three three three three\n"
        + "\n".join(f"L{n}: {'three ' * 12}three" for n in (7, 8, 9, 10))
    )
    assert not output.failed
    sources = [{"type": "url", "url": f"https://{page}"} for page in PAGES]
    action = {"type": "search", "query": "pages", "queries": ["pages"], "sources": sources}
    assert output.details["action"] == action
    first = {"title": "Page one", "url": "https://a.example/one", "snippet": "a snippet of one"}
    assert output.details["results"][0] == first


async def test_a_page_is_shown_with_its_address_its_lines_and_its_links(session: BrowserSession) -> None:
    output = await call(session, "open", id="https://a.example/one")
    assert output.text == (
        f"[0] Page one (https://a.example/one)\n**viewing lines [0 - 4] of 4**\n{UNTRUSTED}\n\n"
        "L0: \nL1: URL: https://a.example/one\n"
        "L2: First 【0†two】 and 【1†three†b.example】.\n"
        "L3: \nL4: The needle is here."
    )
    assert output.details == {"action": {"type": "open_page", "url": "https://a.example/one"}, "results": []}


async def test_search_open_link_find_and_cite(session: BrowserSession) -> None:
    await call(session, "search", query="pages")
    # Of search results a citation means the result on that line.
    assert session.resolve(0, 5) == ("https://a.example/two", "Page two")
    assert session.resolve(0, 9) == ("https://b.example/three", "b.example")
    assert session.resolve(0) is session.resolve(0, 1) is None
    assert (await call(session, "open", id=0)).text.startswith("[1] Page one")
    third = await call(session, "open", cursor=1, id=1)
    assert third.text.startswith("[2] b.example (https://b.example/three)")
    matches = await call(session, "find", pattern="NEEDLE", cursor=1)
    assert matches.text == (
        "[3] Find results for text: `NEEDLE` in `Page one` (https://a.example/one/find)\n"
        f"**viewing lines [0 - 2] of 2**\n{UNTRUSTED}\n\n"
        "L0: # 【0†match at L4】\nL1: The needle is here.\nL2: "
    )
    action = {"type": "find_in_page", "pattern": "NEEDLE", "url": "https://a.example/one"}
    assert matches.details["action"] == action
    assert session.resolve(1) == session.resolve(3) == ("https://a.example/one", "Page one")
    assert session.resolve(2, 3) == ("https://b.example/three", "b.example")
    assert session.resolve(4) is None


async def test_a_view_holds_the_budget_and_scrolling_continues_where_it_ended(shelf: Shelf) -> None:
    session = BrowserTool(shelf, view_tokens=200).open()
    seen: list[str] = []
    output = await call(session, "open", id="https://a.example/two")
    while True:
        assert estimate_tokens(output.text) < 200 + 80
        header = re.search(r"\*\*viewing lines \[(\d+) - (\d+)\] of (\d+)\*\*", output.text)
        assert header is not None
        start, end, last = map(int, header.groups())
        lines = output.text.split("\n\n", 1)[1].split("\n")
        assert [line.partition(":")[0] for line in lines] == [f"L{n}" for n in range(start, end + 1)]
        seen += lines
        if end == last:
            break
        output = await call(session, "open", loc=end + 1)
    assert len(seen) == last + 1 == 402
    assert shelf.reads == ["https://a.example/two"]


async def test_loc_and_num_lines_are_honoured(shelf: Shelf) -> None:
    tool = BrowserTool(shelf)
    session = tool.open()
    output = await call(session, "open", id="https://a.example/two", loc=10, num_lines=3)
    assert "**viewing lines [10 - 12] of 401**" in output.text
    assert output.text.endswith("L12: line 10 of the long page")
    assert "lines [0 - 0] of" in (await call(session, "open", num_lines=1)).text
    for url, last in (("https://a.example/two", 401), ("https://a.example/huge", 25_001)):
        output = await call(session, "open", id=url, num_lines=100_000)
        assert f"of {last}**" in output.text
        assert estimate_tokens(output.text) < 1024 + 80
    await session.close()
    await tool.close()
    assert shelf.closed


async def test_a_line_beyond_the_page_is_explained_and_leaves_no_cursor(session: BrowserSession) -> None:
    await call(session, "open", id="https://a.example/one")
    output = await call(session, "open", loc=99)
    assert (output.failed, "0 to 4" in output.text) == (True, True)
    assert output.details["action"]["url"] == "https://a.example/one"
    assert (await call(session, "open")).text.startswith("[1] ")


async def test_a_result_opens_at_its_passage_if_the_first_view_misses_it(session: BrowserSession) -> None:
    await call(session, "search", query="pages")
    assert "**viewing lines [298 - " in (await call(session, "open", id=1)).text
    assert "**viewing lines [0 - " in (await call(session, "open", id=1, cursor=0, loc=0)).text


async def test_a_match_opens_the_page_above_it_and_a_second_find_searches_the_page(
    session: BrowserSession, shelf: Shelf
) -> None:
    await call(session, "open", id="https://a.example/two")
    assert "# 【0†match at L22】\n" in (await call(session, "find", pattern="line 20")).text
    assert "match at L401" in (await call(session, "find", pattern="line 399")).text
    none = await call(session, "find", pattern="absent")
    assert not none.failed
    assert "No `find` results for pattern: `absent`" in none.text
    assert session.resolve(3) == ("https://a.example/two", "Page two")
    assert "**viewing lines [198 - " in (await call(session, "open", cursor=1, id=1)).text
    assert shelf.reads == ["https://a.example/two"]


async def test_the_source_of_a_page_can_be_viewed(session: BrowserSession) -> None:
    await call(session, "open", id="https://a.example/one")
    output = await call(session, "open", view_source=True)
    assert "(view-source:https://a.example/one)" in output.text
    assert "<html>source</html>" in output.text
    assert output.details["action"]["url"] == "https://a.example/one"
    again = await call(session, "open", id="view-source:https://a.example/one")
    assert again.text.startswith("[2] a.example (view-source:")
    assert "source" in (await call(session, "open", id=0, cursor=0, view_source="true")).text


async def test_pages_are_read_once_unless_asked_by_address(session: BrowserSession, shelf: Shelf) -> None:
    await call(session, "open", id="https://a.example/moved")
    await call(session, "open", id="https://a.example/one")
    await call(session, "open", id=0)
    assert shelf.reads == ["https://a.example/moved", "https://a.example/one"]
    await call(session, "open", id="a.example/one")
    assert shelf.reads[2:] == ["https://a.example/one"]


async def test_no_page_can_forge_the_frame_around_it(session: BrowserSession) -> None:
    output = await call(session, "open", id="https://a.example/evil")
    lines = output.text.split("\n")
    assert lines[0] == "[0] T [7] forged **viewing (https://a.example/evil [9] forged)"
    assert lines[2] == UNTRUSTED
    assert all(re.match(r"L\d+: ", line) for line in lines[4:])


async def test_the_domain_filter_holds_for_results_links_addresses_and_pages_held(
    session: BrowserSession, shelf: Shelf
) -> None:
    await call(session, "open", id="https://a.example/two")
    only_b = {"filters": {"allowed_domains": ["https://B.example/", "*.c.example"]}}
    output = await call(session, "search", only_b, query="pages")
    assert [hit["url"] for hit in output.details["results"]] == ["https://b.example/three"]
    assert shelf.searches[-1].domains == ("b.example", "c.example")
    for arguments in ({"id": "https://a.example/one"}, {"cursor": 0}, {"id": "https://evilb.example/"}):
        assert "domains that this request allows" in await failure(session, "open", only_b, **arguments)
    assert (await call(session, "find", only_b, pattern="line", cursor=0)).failed
    assert not (await call(session, "open", only_b, id=0)).failed
    assert shelf.reads == ["https://a.example/two", "https://b.example/three"]


@pytest.mark.parametrize("filters", [{"allowed_domains": []}, {"allowed_domains": None}, {}, None, "x"])
async def test_an_empty_filter_filters_nothing(session: BrowserSession, filters: object) -> None:
    output = await call(session, "search", {"filters": filters}, query="pages")
    assert len(output.details["results"]) == 3


async def test_context_size_and_topn_set_how_much_is_searched(session: BrowserSession, shelf: Shelf) -> None:
    for size, topn in [("low", 9), ("medium", None), ("medium", 500), ("high", None), ("odd", 3)]:
        await call(session, "search", {"search_context_size": size}, query="pages", topn=topn)
    assert [request.limit for request in shelf.searches] == [5, 10, 20, 20, 3]
    assert [request.snippet_chars for request in shelf.searches] == [160, 240, 240, 400, 240]
    shown = await call(session, "search", query="pages", topn=1)
    assert len(shown.details["results"]) == 1


async def test_the_country_is_sent_and_no_results_are_no_failure(
    session: BrowserSession, shelf: Shelf
) -> None:
    for place in ({"type": "approximate", "country": "gb", "city": "London"}, {"country": "England"}):
        output = await call(session, "search", {"user_location": place}, query="nothing")
        assert not output.failed
        assert "No results were found" in output.text
    assert [request.country for request in shelf.searches] == ["GB", None]


def test_old_pages_are_dropped_and_still_cited() -> None:
    history = PageHistory(max_chars=20_000)
    for name in "abc":
        page = document_page(Document(f"https://{name}.example/", name, f"{name} " * 4_000), source=False)
        history.add(page)
    assert history.page(2).title == "c"
    assert history.resolve(0) == ("https://a.example/", "a")
    with pytest.raises(Exception, match=r"open https://a\.example/ again"):
        history.page(0)
    assert history.opened("https://a.example/", source=False) is None


DEFAULTS = '{"id": -1, "cursor": -1, "loc": -1, "num_lines": -1, "view_source": false}'


@pytest.mark.parametrize(
    ("function", "arguments", "start"),
    [
        ("search", '{"query": "q", "topn": null, "source": "web"}', "[1] q"),
        *(("search", f'{{"query": "q", "topn": {number}}}', "[1] q") for number in ('"2"', "1e400")),
        ("search", '{"query": ["q", "r"]}', "[1] q r"),
        ("search", '{"query": 2024}', "[1] 2024"),
        *(("open", arguments, "[1] pages") for arguments in ("{}", "", DEFAULTS, '{"id": "-1"}')),
        ("open", '{"id": "0"}', "[1] Page one"),
        ("open", '{"id": 0.0, "cursor": "0", "loc": null}', "[1] Page one"),
        ("open", '{"id": "【0†Page one†a.example】", "cursor": "[0]"}', "[1] Page one"),
        ("open", '{"id": null, "url": "https://a.example/one"}', "[1] Page one"),
    ],
)
async def test_lenient_arguments(session: BrowserSession, function: str, arguments: str, start: str) -> None:
    await call(session, "search", query="pages")
    output = await session.run(ToolCall(function, arguments))
    assert output.text.startswith(start)
    assert not output.failed


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        *(("search", wrong, "not valid JSON") for wrong in ('{"query": ', "[" * 50_000, '{"a": ' * 9_000)),
        ("search", "[]", "one JSON object"),
        *(("search", none, "`query` is missing") for none in ("{}", '{"query": "  "}', '{"query": null}')),
        ("search", '{"query": "q", "topn": "many"}', "`topn` must be a whole number"),
        ("search", json.dumps({"query": "q" * 3_000}), "longer than 2000"),
        ("search", json.dumps({"query": "q" * 100_000}), "longer than 65536"),
        *(("open", f'{{"id": {odd}}}', "`id` must be a whole number") for odd in ("true", '{"a": 1}')),
        ("open", '{"id": 0, "cursor": "first"}', "`cursor` must be a whole number"),
        ("open", '{"cursor": NaN}', "`cursor` must be a whole number"),
        ("open", '{"id": 7}', "no link 7: its links are 0 to 2"),
        ("open", '{"id": 99999999999999999999}', "no link 1000000000"),
        ("open", '{"cursor": 5}', "There is no cursor 5: the cursors are 0 to 0"),
        ("open", '{"view_source": true}', "no source"),
        ("open", json.dumps({"id": "https://a.example/" + "x" * 5_000}), "more than 4096"),
        ("open", '{"id": "https://a.example/none"}', "404 Not Found"),
        ("find", "{}", "`pattern` is missing"),
        ("find", '{"pattern": "x"}', "not on search results"),
        ("find", '{"pattern": "x", "cursor": 9}', "There is no cursor 9"),
        ("find", json.dumps({"pattern": "x" * 2_000}), "longer than 1000"),
        ("click", "{}", "browser.search, browser.open, browser.find"),
        ("", '{"query": "q"}', "There is no function"),
        ("x" * 1_000_000, "{}", "There is no function"),
    ],
)
async def test_an_impossible_call_is_explained_to_the_model(
    session: BrowserSession, function: str, arguments: str, words: str
) -> None:
    await call(session, "search", query="pages")
    output = await session.run(ToolCall(function, arguments))
    assert output.failed
    assert words in output.text
    assert len(output.text) < 500
    assert "cursor:" not in json.dumps(dict(output.details))
    assert (await call(session, "open")).text.startswith("[1] ")


async def test_without_any_page_the_output_advises_to_search_first(session: BrowserSession) -> None:
    for function, arguments in (("open", {}), ("open", {"id": 3}), ("find", {"pattern": "x"})):
        assert "No page is open yet" in await failure(session, function, **arguments)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("search", {"query": "down"}, "status 500"),
        ("search", {"query": "broken"}, "(KeyError)"),
        ("search", {"query": "slow"}, "longer than 0.1 seconds"),
        ("open", {"id": "https://a.example/broken"}, "(RuntimeError)"),
    ],
)
async def test_a_backend_that_fails_in_any_way_becomes_an_answer(
    shelf: Shelf, function: str, arguments: dict[str, Any], words: str
) -> None:
    session = BrowserTool(shelf, timeout=0.1).open()
    output = await call(session, function, **arguments)
    assert output.failed
    assert words in output.text
    assert "secret" not in output.text
    assert output.details["action"]["type"] == {"search": "search", "open": "open_page"}[function]
    assert (await call(session, "open", id="https://a.example/one")).text.startswith("[0] ")


async def test_cancelling_a_call_stops_it_and_leaves_the_session_usable(session: BrowserSession) -> None:
    task = asyncio.create_task(call(session, "search", query="slow"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await call(session, "search", query="pages")).text.startswith("[0] ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["query", "topn", "source", "id", "cursor", "loc", "num_lines", "view_source", "pattern"]
ARGUMENTS = st.dictionaries(st.sampled_from(NAMES), json_values | st.sampled_from([0, 1, "pages"]))


@given(st.lists(st.tuples(st.sampled_from(["search", "open", "find"]), ARGUMENTS), max_size=4))
def test_no_arguments_make_a_session_raise(calls: list[tuple[str, dict[str, Any]]]) -> None:
    async def converse() -> None:
        session = BrowserTool(Shelf(), timeout=5).open()
        await call(session, "search", query="pages")
        for function, arguments in calls:
            output = await call(session, function, **arguments)
            output.text.encode()
            json.dumps(dict(output.details)).encode()

    asyncio.run(converse())
