"""SearXNG through its JSON API, and the pages of its results through the safe fetcher."""

from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.doubles.tools.shelf import call, failure
from tests.doubles.tools.web_servers import Answer, Seen, Server, as_json, loopback, pdf, serve
from tools.browser import BrowserTool
from tools.browser.backends.searxng import SearxngBackend
from tools.browser.network.fetch import Fetcher
from tools.browser.session import BrowserSession


def instance(seen: Seen) -> Answer:
    """A SearXNG instance, and, at other paths, the web that it finds."""
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
