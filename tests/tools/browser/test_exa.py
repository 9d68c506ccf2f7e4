"""Exa through exa-py itself, against a double on 127.0.0.1 that uses Exa's wire format."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.doubles.tools.shelf import call
from tests.doubles.tools.web_servers import Answer, Seen, Server, as_json, serve
from tools.browser import BrowserTool
from tools.browser.backends.exa import ExaBackend
from tools.browser.session import BrowserSession

ONE, TWO = "https://a.example/one", "https://b.example/"
PASSAGES = {"highlights": ["The first passage.", "The second\npassage."], "highlightScores": [0.5, 0.4]}
ABOUT = {"title": "Page one", "score": 0.31, "publishedDate": "2024-05-01T00:00:00.000Z", "author": None}
RESULTS = [
    {"id": ONE, "url": ONE, **ABOUT, **PASSAGES},
    {"id": TWO, "url": TWO, "title": None, "highlights": []},
]
ARTICLE = "<html><body><h1>Article</h1><p>Text with <a href='/more'>a link</a>.</p></body></html>"


def exa(seen: Seen) -> Answer:
    """The response of api.exa.ai, in the fields that its client reads."""
    request = json.loads(seen.body)
    if seen.headers.get("x-api-key") != "a-key":
        return as_json({"error": "Invalid API key", "tag": "INVALID_API_KEY"}, 401)
    if seen.path == "/search":
        if request["query"] == "limit":
            return as_json({"error": "You are over the limit of key a-key", "tag": "RATE_LIMIT"}, 429)
        if request["query"] == "page":
            return Answer("<html>a gateway's page</html>")
        if request["query"] == "odd":
            return as_json({"nothing": "known"})
        cost = {"total": 0.005, "search": {"neural": 0.005}}
        about = {"requestId": "r1", "resolvedSearchType": "neural", "searchTime": 12.5, "costDollars": cost}
        return as_json({**about, "results": RESULTS[: request["numResults"]]})
    (url,) = request["urls"]
    if url.endswith("/missing"):
        error = {"tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404}
        return as_json({"results": [], "statuses": [{"id": url, "status": "error", "error": error}]})
    texts = {"/empty": "", "/paper.pdf": "Abstract\n\nIf a < b then 【3†x】.\n\nEnd"}
    text = next((text for end, text in texts.items() if url.endswith(end)), ARTICLE)
    final = "https://elsewhere.example/" if url.endswith("/moved") else url
    result = {"id": url, "url": final, "title": "An article", "author": "x", "text": text}
    statuses = [{"id": url, "status": "success", "source": "cached"}]
    return as_json({"requestId": "r2", "results": [result], "statuses": statuses})


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(exa) as server:
        yield server


@pytest.fixture
async def session(server: Server) -> AsyncIterator[BrowserSession]:
    tool = BrowserTool(ExaBackend("a-key", base_url=server.url))
    yield tool.open()
    await tool.close()


async def test_a_search_requests_passages_and_shows_them(session: BrowserSession, server: Server) -> None:
    output = await call(session, "search", query="what is it", topn=7)
    assert not output.failed, output.text
    assert "L4:   * 【0†Page one†a.example】 The first passage. … The second passage." in output.text
    second = {"title": "https://b.example/", "url": "https://b.example/", "snippet": ""}
    assert output.details["results"][1] == second
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/search")
    passages = {"highlights": {"maxCharacters": 240}}
    assert json.loads(seen.body) == {"query": "what is it", "numResults": 7, "contents": passages}


async def test_the_requests_domains_and_location_are_sent(session: BrowserSession, server: Server) -> None:
    options = {
        "filters": {"allowed_domains": ["a.example"]},
        "user_location": {"type": "approximate", "country": "DE"},
        "search_context_size": "high",
    }
    output = await call(session, "search", query="q", options=options)
    assert [hit["url"] for hit in output.details["results"]] == ["https://a.example/one"]
    sent = {"includeDomains": ["a.example"], "userLocation": "DE", "numResults": 20, "query": "q"}
    assert json.loads(server.seen[0].body) == {**sent, "contents": {"highlights": {"maxCharacters": 400}}}


async def test_a_page_is_read_by_exa_with_its_links(session: BrowserSession, server: Server) -> None:
    await call(session, "search", query="q")
    output = await call(session, "open", id=0)
    assert output.text.startswith("[1] An article (https://a.example/one)\n")
    assert output.text.endswith("L2: # Article\nL3: \nL4: Text with 【0†a link】.")
    text = {"includeHtmlTags": True, "maxCharacters": 2_000_000}
    assert json.loads(server.seen[1].body) == {"urls": ["https://a.example/one"], "text": text}
    assert "【0†" not in (await call(session, "open", view_source=True)).text
    assert session.resolve(1) == ("https://a.example/one", "An article")


async def test_text_without_tags_keeps_its_lines(session: BrowserSession) -> None:
    output = await call(session, "open", id="https://a.example/paper.pdf")
    assert output.text.endswith("L2: Abstract\nL3: \nL4: If a < b then 〖3†x〗.\nL5: \nL6: End")


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("search", {"query": "limit"}, "status 429"),
        ("search", {"query": "page"}, "not understood"),
        ("search", {"query": "odd"}, "not understood"),
        ("open", {"id": "https://a.example/missing"}, "it was not found (404)"),
        ("open", {"id": "https://a.example/empty"}, "no text"),
        ("open", {"id": "http://127.0.0.1/"}, "not on the public Internet"),
        ("open", {"id": "file:///etc/passwd"}, "Only http and https"),
        ("open", {"id": "https://a.example/moved"}, "does not allow"),
    ],
)
async def test_failures_are_explained_without_the_key(
    session: BrowserSession, function: str, arguments: dict[str, Any], words: str
) -> None:
    options = {"filters": {"allowed_domains": ["a.example"]}} if words == "does not allow" else None
    output = await call(session, function, options, **arguments)
    assert output.failed
    assert words in output.text
    assert "a-key" not in output.text


async def test_a_wrong_key_and_an_unreachable_service_are_explained(server: Server) -> None:
    for key, url, words in (
        ("another", server.url, "status 401"),
        ("a-key", "http://127.0.0.1:9", "could not be reached"),
    ):
        tool = BrowserTool(ExaBackend(key, base_url=url))
        assert words in (await call(tool.open(), "search", query="q")).text
        await tool.close()
