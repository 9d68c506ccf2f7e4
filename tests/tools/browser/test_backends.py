"""Backends: each by its name, Exa through exa-py against a double, and SearXNG with the safe fetcher."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.doubles.tools.shelf import call, failure
from tests.doubles.tools.web_servers import Answer, Seen, Server, as_json, loopback, pdf, serve
from tools.browser import BrowserTool, default_backend, parse_backend
from tools.browser.backends.exa import ExaBackend
from tools.browser.backends.local import LocalBackend
from tools.browser.backends.searxng import SearxngBackend
from tools.browser.network.fetch import Fetcher
from tools.browser.session import BrowserSession
from tools.tool import ToolUnavailable

KEY = {"EXA_API_KEY": "a-key"}


def test_each_name_gives_its_backend(tmp_path: Path) -> None:
    assert isinstance(parse_backend("exa", KEY), ExaBackend)
    assert isinstance(parse_backend("exa:http://127.0.0.1:9/", KEY), ExaBackend)
    assert isinstance(parse_backend(f"local:{tmp_path}", {}), LocalBackend)
    assert isinstance(parse_backend("searxng:http://127.0.0.1:8080", {}), SearxngBackend)
    assert parse_backend(" off ", {}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("exa", "set EXA_API_KEY"), ("google", "must be exa, exa:URL, local:DIR, searxng:URL or off")),
        *(("", "must be exa"), ("off:x", "must be exa"), ("local:", "needs a folder")),
        *(
            (f"local:{folder}", "a folder that exists")
            for folder in ("~nobody-of-this-name/docs", "/nowhere")
        ),
        *((f"searxng:{address}", "needs an address") for address in ("", "example.com", "http://")),
    ],
)
def test_an_unusable_backend_is_explained(text: str, words: str) -> None:
    with pytest.raises(ToolUnavailable, match=words):
        parse_backend(text, {})


def test_exa_is_the_default_where_its_key_is_set() -> None:
    assert default_backend(KEY) == "exa"
    assert default_backend({"EXA_API_KEY": ""}) == default_backend({}) == "off"


ONE, TWO = "https://a.example/one", "https://b.example/"
PASSAGES = {"highlights": ["The first passage.", "The second\npassage."], "highlightScores": [0.5, 0.4]}
ABOUT = {"title": "Page one", "score": 0.31, "publishedDate": "2024-05-01T00:00:00.000Z", "author": None}
RESULTS = [
    {"id": ONE, "url": ONE, **ABOUT, **PASSAGES},
    {"id": TWO, "url": TWO, "title": None, "highlights": []},
]
ARTICLE = "<html><body><h1>Article</h1><p>Text with <a href='/more'>a link</a>.</p></body></html>"


def exa(seen: Seen) -> Answer:
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
def exa_server() -> Iterator[Server]:
    with serve(exa) as server:
        yield server


@pytest.fixture
async def by_exa(exa_server: Server) -> AsyncIterator[BrowserSession]:
    tool = BrowserTool(ExaBackend("a-key", base_url=exa_server.url))
    yield tool.open()
    await tool.close()


async def test_a_search_requests_passages_and_shows_them(by_exa: BrowserSession, exa_server: Server) -> None:
    output = await call(by_exa, "search", query="what is it", topn=7)
    assert not output.failed, output.text
    assert "L4:   * 【0†Page one†a.example】 The first passage. … The second passage." in output.text
    second = {"title": "https://b.example/", "url": "https://b.example/", "snippet": ""}
    assert output.details["results"][1] == second
    (seen,) = exa_server.seen
    assert (seen.method, seen.path) == ("POST", "/search")
    passages = {"highlights": {"maxCharacters": 240}}
    assert json.loads(seen.body) == {"query": "what is it", "numResults": 7, "contents": passages}


async def test_the_requests_domains_and_location_are_sent(by_exa: BrowserSession, exa_server: Server) -> None:
    options = {
        "filters": {"allowed_domains": ["a.example"]},
        "user_location": {"type": "approximate", "country": "DE"},
        "search_context_size": "high",
    }
    output = await call(by_exa, "search", query="q", options=options)
    assert [hit["url"] for hit in output.details["results"]] == ["https://a.example/one"]
    sent = {"includeDomains": ["a.example"], "userLocation": "DE", "numResults": 20, "query": "q"}
    assert json.loads(exa_server.seen[0].body) == {**sent, "contents": {"highlights": {"maxCharacters": 400}}}


async def test_a_page_is_read_by_exa_with_its_links(by_exa: BrowserSession, exa_server: Server) -> None:
    await call(by_exa, "search", query="q")
    output = await call(by_exa, "open", id=0)
    assert output.text.startswith("[1] An article (https://a.example/one)\n")
    assert output.text.endswith("L2: # Article\nL3: \nL4: Text with 【0†a link】.")
    text = {"includeHtmlTags": True, "maxCharacters": 2_000_000}
    assert json.loads(exa_server.seen[1].body) == {"urls": ["https://a.example/one"], "text": text}
    assert "【0†" not in (await call(by_exa, "open", view_source=True)).text
    assert by_exa.resolve(1) == ("https://a.example/one", "An article")


async def test_text_without_tags_keeps_its_lines(by_exa: BrowserSession) -> None:
    output = await call(by_exa, "open", id="https://a.example/paper.pdf")
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
    by_exa: BrowserSession, function: str, arguments: dict[str, Any], words: str
) -> None:
    options = {"filters": {"allowed_domains": ["a.example"]}} if words == "does not allow" else None
    output = await call(by_exa, function, options, **arguments)
    assert output.failed
    assert words in output.text
    assert "a-key" not in output.text


async def test_a_wrong_key_and_an_unreachable_service_are_explained(exa_server: Server) -> None:
    for key, url, words in (
        ("another", exa_server.url, "status 401"),
        ("a-key", "http://127.0.0.1:9", "could not be reached"),
    ):
        tool = BrowserTool(ExaBackend(key, base_url=url))
        assert words in (await call(tool.open(), "search", query="q")).text
        await tool.close()


def instance(seen: Seen) -> Answer:
    address = urlsplit(seen.path)
    host = seen.headers["host"]
    web = {
        "/page": Answer("<title>Found</title><p>The <a href='/paper.pdf'>paper</a>."),
        "/paper.pdf": Answer(pdf("Results of the paper"), content_type="application/pdf"),
        "/picture": Answer(b"\x89PNG\0", content_type="image/png"),
    }
    if address.path != "/search":
        return web.get(address.path, Answer("no", status=404))
    query = parse_qs(address.query)["q"][0]
    failures = {"html": Answer("<html>"), "forbidden": Answer("no", 403), "down": Answer("no", 502)}
    if query in failures:
        return failures[query]
    if query == "quiet":
        return as_json({"query": query, "results": [], "unresponsive_engines": [["google", "timeout"]]})
    results = [
        {"url": f"http://{host}/page", "title": "Found", "content": "The  paper", "engine": "x", "score": 1},
        {"url": "magnet:?xt=1", "title": "no page"},
        {"title": "no address"},
        {"url": "https://b.example/", "title": "", "content": None},
    ]
    return as_json({"query": query, "number_of_results": 2, "results": results, "unresponsive_engines": []})


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(instance) as server:
        yield server


@pytest.fixture
async def session(server: Server) -> AsyncIterator[BrowserSession]:
    fetcher = Fetcher(allow_private_hosts=True, resolver=loopback)
    tool = BrowserTool(SearxngBackend(server.url), fetcher=fetcher)
    yield tool.open()
    await tool.close()


async def test_search_open_a_page_and_its_pdf(session: BrowserSession, server: Server) -> None:
    output = await call(session, "search", query="a paper")
    assert [hit["title"] for hit in output.details["results"]] == ["Found", "https://b.example/"]
    assert server.seen[0].path == "/search?q=a+paper&format=json&pageno=1"
    page = await call(session, "open", id=0)
    assert page.text.endswith("L2: The 【0†paper】.")
    paper = await call(session, "open", id=0)
    assert paper.text.startswith("[2] A paper (http://127.0.0.1")
    assert paper.text.endswith("L4: Results of the paper")


async def test_allowed_domains_are_requested_and_filtered(session: BrowserSession, server: Server) -> None:
    one = {"filters": {"allowed_domains": ["b.example"]}}
    output = await call(session, "search", query="q", options=one)
    assert [hit["url"] for hit in output.details["results"]] == ["https://b.example/"]
    two = {"filters": {"allowed_domains": ["b.example", "c.example"]}}
    await call(session, "search", query="q", options=two)
    queries = [parse_qs(urlsplit(seen.path).query)["q"][0] for seen in server.seen]
    assert queries == ["q site:b.example", "q (site:b.example OR site:c.example)"]
    blocked = {"filters": {"blocked_domains": ["b.example"]}}
    output = await call(session, "search", query="q", options=blocked)
    assert "https://b.example/" not in [hit["url"] for hit in output.details["results"]]


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("search", {"query": "html"}, "did not answer with JSON"),
        ("search", {"query": "forbidden"}, "search.formats"),
        ("search", {"query": "down"}, "status 502"),
        ("search", {"query": "quiet"}, "engines did not answer"),
        ("open", {"id": "/missing"}, "404 Not Found"),
        ("open", {"id": "/picture"}, "image/png"),
    ],
)
async def test_failures_are_explained(
    session: BrowserSession, server: Server, function: str, arguments: dict[str, str], words: str
) -> None:
    if "id" in arguments:
        arguments = {"id": server.url + arguments["id"]}
    assert words in await failure(session, function, **arguments)


async def test_the_instance_may_be_private_while_pages_may_not(server: Server) -> None:
    tool = BrowserTool(SearxngBackend(f"{server.url}/search"))
    session = tool.open()
    assert not (await call(session, "search", query="q")).failed
    assert "not on the public Internet" in await failure(session, "open", id=0)
    assert [urlsplit(seen.path).path for seen in server.seen] == ["/search"]
    await tool.close()
    nowhere = BrowserTool(SearxngBackend("http://127.0.0.1:9"))
    assert "could not be reached" in await failure(nowhere.open(), "search", query="q")
    await nowhere.close()
