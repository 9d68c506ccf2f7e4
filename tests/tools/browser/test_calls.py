"""Every call and every failure gives the model an output, and the session stays usable."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.tools.shelf import Shelf, call, failure
from tools.browser import BrowserTool
from tools.browser.session import BrowserSession
from tools.tool import ToolCall

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
