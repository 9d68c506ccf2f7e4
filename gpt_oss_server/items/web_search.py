"""Web search: gpt-oss's browser tool, and the items of its calls.

Takes the browser settings, a request's `web_search` tool, and calls. Returns the tool, its options, and the
builder of each call's item. It must not know how the browser searches; `tools.browser` does.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import to_json

from gpt_oss_server.content.tools import Tool
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.items import file_search
from gpt_oss_server.items.builder import EventTexts, Item, ItemBuilder, ServerCall
from gpt_oss_server.items.hosted import Field, HostedCall, HostedTool, Maker, PastCall
from gpt_oss_server.json_values import dicts_of, read_json_text
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from tools.tool import ToolOutput
from tools.toolbox import Offer, offer_of

if TYPE_CHECKING:
    from tools.browser.backends.base import Backend

_SOURCES, _RESULTS = "web_search_call.action.sources", "web_search_call.results"
_PAGES = "browser_pages"
_TIMEOUT = 30.0  # seconds; the browser's own limit
# Every result of the browser begins with its cursor.
_CURSOR = re.compile(r"<\|start\|>browser\.\w+ to=assistant<\|channel\|>\w+<\|message\|>\[(\d{1,9})\]")


class WebSearch(HostedTool):
    """A given `backend` replaces the one that the settings name."""

    namespace = "browser"
    types = (
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
        "browser_search",
        file_search.TYPE,
    )
    fields = (
        Field("filters", dict, "an object"),
        Field("user_location", dict, "an object"),
        Field("search_context_size", object, "any value"),
    )
    off = (
        "The browser is off. Start with --browser local:DIR for a folder of documents, "
        "--browser searxng:URL, or --browser exa with EXA_API_KEY set."
    )
    channel = "analysis"
    in_system_message = True
    cites = True
    repeatable = True  # it only reads
    item_type = "web_search_call"
    id_prefix = "ws"
    includable = (_SOURCES, _RESULTS, file_search.RESULTS)

    def __init__(self, backend: Backend | None = None, files: VectorStores | None = None) -> None:
        self._backend = backend
        self._files = files
        self._has_web = False

    def maker(self, settings: Settings) -> Maker | None:
        web = self._backend or browser_backend(settings)
        self._has_web = web is not None
        backend = web if self._files is None else file_search.FilesAndWeb(self._files, web)
        if backend is None:
            return None

        async def make() -> Offer:
            BrowserTool = (await asyncio.to_thread(import_module, "tools.browser")).BrowserTool
            browser = BrowserTool(
                backend,
                allow_private_hosts=settings.allow_private_hosts,
                timeout=_TIMEOUT,
                count_tokens=lambda text: len(load_encoding().encode(text)),
            )
            return offer_of(browser, _TIMEOUT)

        return make

    def options(self, tool: Tool, where: str) -> Mapping[str, Any] | None:
        if tool["type"] == file_search.TYPE:
            return {file_search.FILES: file_search.read_options(tool, where)}
        if tool.get("external_web_access") is False:
            return None
        return {**(super().options(tool, where) or {}), "web": True}

    def shown_types(self, *, here: bool) -> list[str]:
        both = {self.types[0]: self._has_web or not here, file_search.TYPE: here and self._files is not None}
        return [kind for kind, is_offered in both.items() if is_offered]

    def lacks(self, options: Mapping[str, Any], *, here: bool) -> bool:
        of_files, of_web = file_search.FILES in options, "web" in options
        return (of_files and not (here and self._files)) or (of_web and here and not self._has_web)

    async def bound(self, options: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
        if self._files is None or (files := options.get(file_search.FILES)) is None:
            return options
        await file_search.check_stores(self._files.of(owner), files, int(time.time()))
        return {**options, file_search.FILES: {**files, "owner": owner}}

    def is_optional(self, tool: Tool) -> bool:
        """Codex sends `external_web_access` to every server, whether or not the server has a browser."""
        return "external_web_access" in tool

    def resumed(
        self, results: Callable[[], Sequence[str]], carried: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Keeps a new session from reusing cursors that the model has read, as the model cites by cursor.

        A conversation outlives its sessions, and may outlive the server.
        """
        cursors = [_CURSOR.match(result) for result in results()]
        first = max((int(cursor[1]) for cursor in cursors if cursor), default=-1) + 1
        pages = [
            page
            for record in carried
            if record.get("type") == _PAGES and isinstance(record.get("pages"), list)
            for page in record["pages"]
        ]
        return {"first_cursor": first, "pages": pages} if pages else {"first_cursor": first}

    def carries(self, session: Any, options: Mapping[str, Any]) -> Mapping[str, Any] | None:
        records_since = getattr(session, "records_since", None)  # a tool server's browser has none
        pages = records_since(options.get("first_cursor", 0)) if records_since is not None else []
        return {"type": _PAGES, "pages": pages} if pages else None

    def cited(self, options: Mapping[str, Any], cursor: int, line: int | None) -> tuple[str, str] | None:
        if not (pages := options.get("pages")):
            return None
        from tools.browser.history import kept_pages

        page = kept_pages(pages).get(cursor)
        return None if page is None else page.cited(line)

    def item(self, call: HostedCall) -> ItemBuilder:
        if file_search.shows_files(call.options):
            return file_search.FileSearchBuilder(call)
        return WebSearchBuilder(call)

    def past_call(self, item: Item) -> PastCall:
        """The call, as far as the item's action shows it; few items hold results."""
        action = item["action"] if isinstance(item.get("action"), dict) else {}
        match action.get("type"):
            case "open_page":
                function, fields = "open", {"id": action.get("url")}
            case "find_in_page" | "find":
                function, fields = "find", {"pattern": action.get("pattern")}
            case _:
                queries = action.get("queries")
                first = queries[0] if isinstance(queries, list) and queries else None
                function, fields = "search", {"query": action.get("query") or first}
        arguments = to_json({key: value for key, value in fields.items() if isinstance(value, str)}).decode()
        hits = [
            "\n".join(str(hit[key]) for key in ("title", "url", "snippet") if hit.get(key))
            for hit in dicts_of(item.get("results"))
        ]
        return PastCall(function, arguments, "\n\n".join(hits))


def browser_backend(settings: Settings) -> Backend | None:
    """Where the settings let the browser search; None if nowhere."""
    if settings.browser is None and not os.environ.get("EXA_API_KEY"):
        return None  # before the import of the browser
    from tools.browser.backends import default_backend, parse_backend

    return parse_backend(settings.browser or default_backend())


class WebSearchBuilder(ServerCall):
    """A call of the browser. Until the browser answers, the action is a guess from the arguments."""

    about = "A call of the browser: a search, an opened page, or a text looked for in a page."
    about_events: ClassVar[EventTexts] = {
        "response.web_search_call.in_progress": "A call of the browser begins.",
        "response.web_search_call.searching": "The browser works.",
        "response.web_search_call.completed": "The browser has answered, or failed: the item states which.",
    }
    kind = "web_search_call"
    runs = "searching"
    cut_off = "failed"

    def __init__(self, call: HostedCall) -> None:
        super().__init__(call.id)
        self._function = call.function
        self._include = call.include

    def item(self, status: str, text: str, output: ToolOutput | None = None) -> Item:
        details = {} if output is None else output.details
        action = dict(details.get("action") or _guess(self._function, text))
        if _SOURCES not in self._include:
            action.pop("sources", None)
        shown = {key: details[key] for key in ("results",) if key in details and _RESULTS in self._include}
        return {"id": self.id, "type": self.kind, "status": status, "action": action, **shown}


def _guess(function: str, arguments: str) -> dict[str, Any]:
    """The action as far as the arguments show it, in a form that every client can read."""
    try:
        value = read_json_text(arguments)
    except ValueError:
        value = None
    known: dict[str, Any] = value if isinstance(value, dict) else {}

    def text(key: str) -> str:
        entry = known.get(key)
        return entry if isinstance(entry, str) else ""

    match function:
        case "open":
            return {"type": "open_page", **({"url": text("id")} if "://" in text("id") else {})}
        case "find":
            return {"type": "find_in_page", "pattern": text("pattern"), "url": ""}
        case _:
            return {"type": "search", "query": text("query") or (arguments if value is None else "")}
