"""The browser as a tool, and one conversation's use of it. Every error becomes a failed output."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from tools.browser.arguments import Find, Open, Search, read_call
from tools.browser.backends.base import Backend, ReadRequest, SearchHit, SearchRequest
from tools.browser.history import PageHistory, Record
from tools.browser.network.fetch import Fetcher
from tools.browser.options import BrowseOptions, read_options
from tools.browser.page import Link, Page, document_page, matches_page, results_page
from tools.browser.pages.document import BrowserError, PageError, UsageError
from tools.browser.pages.text import clean
from tools.browser.view import CountTokens, estimate_tokens, reaches, show
from tools.tool import Declaration, Function, ToolCall, ToolOutput

log = logging.getLogger(__name__)

_VIEW_SOURCE = "view-source:"
_LINES_OF_A_PASSAGE = 8  # including those above it


_NUMBER: Final = {"type": "number", "default": -1}


def _parameters(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return schema | {"required": list(required)} if required else schema


BROWSER: Final = Declaration(
    namespace="browser",
    description=(
        "Tool for browsing.\n"
        "The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
        "Cite information from the tool using the following format:\n"
        "`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n"
        "Do not quote more than 10 words directly from the tool output.\n"
        "sources=web (default: web)"
    ),
    functions=(
        Function(
            "search",
            "Searches for information related to `query` and displays `topn` results.",
            _parameters(
                {
                    "query": {"type": "string"},
                    "topn": {"type": "number", "default": 10},
                    "source": {"type": "string"},
                },
                "query",
            ),
        ),
        Function(
            "open",
            "Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, "
            "showing `num_lines` lines.\n"
            "Valid link ids are displayed with the formatting: `【{id}†.*】`.\n"
            "If `cursor` is not provided, the most recent page is implied.\n"
            "If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n"
            "If `loc` is not provided, the viewport will be positioned at the beginning of the document or "
            "centered on the most relevant passage, if available.\n"
            "Use this function without `id` to scroll to a new location of an opened page.",
            _parameters(
                {
                    "id": {"type": ["number", "string"], "default": -1},
                    "cursor": _NUMBER,
                    "loc": _NUMBER,
                    "num_lines": _NUMBER,
                    "view_source": {"type": "boolean", "default": False},
                    "source": {"type": "string"},
                }
            ),
        ),
        Function(
            "find",
            "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
            _parameters({"pattern": {"type": "string"}, "cursor": _NUMBER}, "pattern"),
        ),
    ),
)


class BrowserTool:
    """`search`, `open` and `find` over one backend. It owns the fetcher, the only way to untrusted addresses.

    `view_tokens` limits what one call shows, `timeout` (seconds) how long it takes. `count_tokens` counts as
    the model does; the default is an estimate. `allow_private_hosts` is for tests and lab networks.
    """

    declaration = BROWSER

    def __init__(
        self,
        backend: Backend,
        *,
        allow_private_hosts: bool = False,
        view_tokens: int = 1024,
        timeout: float = 30.0,
        count_tokens: CountTokens = estimate_tokens,
        fetcher: Fetcher | None = None,
    ) -> None:
        if view_tokens < 1 or timeout <= 0:
            raise ValueError("view_tokens and timeout must be positive")
        self.backend = backend
        self.fetcher = fetcher or Fetcher(allow_private_hosts=allow_private_hosts, timeout=timeout)
        self.view_tokens = view_tokens
        self.timeout = timeout
        self.count_tokens = count_tokens

    def open(self) -> BrowserSession:
        return BrowserSession(self)

    async def close(self) -> None:
        await self.backend.close()
        await self.fetcher.close()


class BrowserSession:
    def __init__(self, tool: BrowserTool) -> None:
        self._tool = tool
        self._history = PageHistory()
        self._owner, self._details = "", Details()  # of the current call

    async def run(self, call: ToolCall) -> ToolOutput:
        """Turns failures into text; no other place does."""
        self._owner, seconds = call.client.name, self._tool.timeout
        self._details = unread_details(call.function)
        try:
            async with asyncio.timeout(seconds) as limit:
                request = read_call(call.function, call.arguments)
                text = await self._run(request, read_options(call.options))
        except BrowserError as error:
            return self._failure(str(error))
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return self._failure(f"This took longer than {seconds:g} seconds and was stopped.")
            # The model learns only the kind of error: the message may hold private details.
            log.warning("the browser failed", exc_info=error)
            return self._failure(f"The browser failed ({type(error).__name__}). Try another way.")
        return ToolOutput(text, details=self._details)

    def resolve(self, cursor: int, line: int | None = None) -> tuple[str, str] | None:
        """The (url, title) that a citation names; for search results, those of the result on the line."""
        return self._history.resolve(cursor, line)

    def records_since(self, cursor: int) -> list[Record]:
        """The pages since a cursor, as plain data: `pages` of the options of a later session's calls."""
        return self._history.records_since(cursor)

    async def close(self) -> None:
        self._history = PageHistory()

    def _failure(self, words: str) -> ToolOutput:
        return ToolOutput(f"Error: {words}", failed=True, details=self._details)

    async def _run(self, request: Search | Open | Find, options: BrowseOptions) -> str:
        self._history.continue_from(options.first_cursor, options.pages)
        match request:
            case Search():
                self._details = search_details(request.query)
                return await self._search(request, options)
            case Open():
                self._details = open_details(request.url)
                if request.url is None:
                    await self._read_again(request, options)
                link, page = self._target(request)
                self._details = open_details(link.url)
                return await self._open(link, page, request, options)
            case Find():
                self._details = find_details(request.pattern, "")
                await self._read_again(request, options)
                return await self._find(request, options)
            case _:
                assert_never(request)

    async def _read_again(self, request: Open | Find, options: BrowseOptions) -> None:
        """Reads the page of an earlier session that the call needs."""
        if (unread := self._history.unread(request.cursor)) is None:
            return
        cursor, page = unread
        if isinstance(request, Find):
            self._details = find_details(request.pattern, page.url)
        else:
            self._details = open_details(page.url)
        read = await self._read(Link(page.url, source=page.source), options, again=False)
        self._history.read_again(cursor, read)

    async def _search(self, request: Search, options: BrowseOptions) -> str:
        size = options.size
        limit = min(request.topn or size.results, size.most_results)
        wanted = (request.query, limit, size.snippet_chars, options.domains, options.country, options.given)
        hits = await self._tool.backend.search(SearchRequest(*wanted))
        hits = [hit for hit in hits if options.permits(hit.url)][:limit]
        self._details = search_details(request.query, hits)
        return self._show(results_page(request.query, hits), 0, None, options)

    async def _open(self, link: Link, page: Page | None, request: Open, options: BrowseOptions) -> str:
        if page is None or not options.permits(page.url):
            page = await self._read(link, options, again=request.url is not None)
        start = request.loc if request.loc is not None else self._start(page, link, options)
        text = self._show(page, start, request.num_lines, options)
        self._details = open_details(page.url)
        return text

    async def _find(self, request: Find, options: BrowseOptions) -> str:
        page = self._history.page(request.cursor)
        self._details = find_details(request.pattern, page.url)
        if page.kind == "results":
            raise UsageError("`find` works on pages, not on search results: open one of them first.")
        if page.kind == "matches":  # a second find without a cursor means the page, not the matches
            page = self._history.opened(page.url, source=page.source) or page
        if not options.permits(page.url):
            raise PageError("This page is not in one of the domains that this request allows.")
        matches = await asyncio.to_thread(matches_page, page, request.pattern)
        return self._show(matches, 0, None, options)

    def _target(self, request: Open) -> tuple[Link, Page | None]:
        """What to open: a link to read, or a page that is already held."""
        if request.url is not None:
            url = request.url.removeprefix(_VIEW_SOURCE)  # as the header of a source view spells it
            source = request.view_source or url != request.url
            return Link(_with_scheme(url), source=source), None
        page = self._history.page(request.cursor)
        if request.link is not None:
            if request.link >= len(page.links):
                there = f"its links are 0 to {len(page.links) - 1}" if page.links else "it has no links"
                raise UsageError(f"The page has no link {request.link}: {there}.")
            link = page.links[request.link]
            return (Link(link.url, source=True) if request.view_source else link), None
        if page.kind == "results" and request.view_source:
            raise UsageError("Search results have no source to view: open one of them.")
        if request.view_source and not page.source:
            return Link(page.url, source=True), None
        return Link(page.url), page

    async def _read(self, link: Link, options: BrowseOptions, *, again: bool) -> Page:
        if not link.url:
            raise UsageError("There is no page to open.")
        if not options.permits(link.url):
            raise PageError("This page is not in one of the domains that this request allows.")
        held = None if again else self._history.opened(link.url, source=link.source)
        if held is not None:
            return held
        how = (options.permits, self._tool.fetcher, link.source, self._owner, options.given)
        request = ReadRequest(link.url, *how)
        document = await self._tool.backend.read(request)
        self._history.redirected(link.url, document.url)
        return await asyncio.to_thread(document_page, document, source=link.source)

    def _start(self, page: Page, link: Link, options: BrowseOptions) -> int:
        """The link's own line; for a passage, line 0 unless the first view would miss it."""
        if link.line is not None:
            return min(link.line, len(page.lines) - 1)
        line = page.find_line(link.passage) if link.passage else None
        if line is None:
            return 0
        last = min(line + _LINES_OF_A_PASSAGE, len(page.lines) - 1)
        return 0 if reaches(page, last, self._budget(options), self._tool.count_tokens) else line

    def _show(self, page: Page, start: int, num_lines: int | None, options: BrowseOptions) -> str:
        """Renders the view. The page gets its cursor only now, so that failures leave none."""
        cursor = self._history.next_cursor
        text = show(page, cursor, start, num_lines, self._budget(options), self._tool.count_tokens)
        self._history.add(page)
        return text

    def _budget(self, options: BrowseOptions) -> int:
        return self._tool.view_tokens * options.size.view_factor


def _with_scheme(url: str) -> str:
    """Reads `example.com/page` as a web address."""
    head = url.partition("/")[0].partition("?")[0]
    named = ":" in head and not head.rpartition(":")[2].isdigit()
    return url if named else f"https://{url.lstrip('/')}"


Details = dict[str, Any]


def search_details(query: str, hits: Sequence[SearchHit] = ()) -> Details:
    sources = [{"type": "url", "url": hit.url} for hit in hits]
    queries = [query] if query else []
    results = [
        {**hit.details, "title": clean(hit.title), "url": hit.url, "snippet": clean(hit.snippet)}
        for hit in hits
    ]
    return {
        "action": {"type": "search", "query": query, "queries": queries, "sources": sources},
        "results": results,
    }


def open_details(url: str | None) -> Details:
    return {"action": {"type": "open_page", "url": url or None}, "results": []}


def find_details(pattern: str, url: str) -> Details:
    return {"action": {"type": "find_in_page", "pattern": pattern, "url": url}, "results": []}


def unread_details(function: str) -> Details:
    """The details of a call with unreadable arguments; {} if even the function is unknown."""
    known = {"search": search_details(""), "open": open_details(None), "find": find_details("", "")}
    return known.get(function, {})
