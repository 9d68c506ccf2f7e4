"""File search: the browser over the files of vector stores, the items of its calls, and its citations.

Takes vector stores and the browser's requests. Returns hits and documents, and for the API `file_search_call`
items and `file_citation`s. The model searches, opens a file at a line and reads on, as it was trained to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from pydantic_core import to_json

from gpt_oss_server.content.filters import read_filter
from gpt_oss_server.content.ranking import check_ranking, read_ranking
from gpt_oss_server.content.tools import Tool
from gpt_oss_server.errors import InvalidRequest, NotFound
from gpt_oss_server.items.builder import EventTexts, Item, ServerCall, json_object
from gpt_oss_server.items.conversation import NOT_KEPT, Conversation
from gpt_oss_server.items.hosted import HostedCall
from gpt_oss_server.items.kind import ItemKind, ItemType, completed
from gpt_oss_server.json_values import dicts_of
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.vector_stores import Found
from tools.tool import ToolOutput
from tools.words import words_of_query

if TYPE_CHECKING:
    from tools.browser.backends.base import Backend, ReadRequest, SearchHit, SearchRequest
    from tools.browser.citations import Citation
    from tools.browser.pages.document import Document

TYPE, RESULTS = "file_search", "file_search_call.results"
FILES = "files"  # the key of its options among those of the browser
_MOST_RESULTS, _MOST_STORES = 50, 20
_RESULTS, _STORES = range(1, _MOST_RESULTS + 1), range(1, _MOST_STORES + 1)
_URL = re.compile(r"file-search://([^/]*)/([^#?]*)")


def read_options(tool: Tool, where: str) -> Mapping[str, Any]:
    """The checked options of a `file_search` tool, as plain data.

    Messages has `shown_as_pages`: its calls are items of a web search, whose pages are the files.
    """
    ids, most = tool.get("vector_store_ids"), tool.get("max_num_results")
    are_ids = isinstance(ids, list) and all(isinstance(each, str) for each in ids) and len(ids) in _STORES
    for field, expected, holds in (
        ("vector_store_ids", f"a list of 1 to {_MOST_STORES} ids", are_ids),
        ("max_num_results", f"a number from 1 to {_MOST_RESULTS}", most is None or most in _RESULTS),
    ):
        if not holds:
            raise InvalidRequest.at(f"{where}.{field}", f"must be {expected}.")
    filters, ranking = tool.get("filters"), tool.get("ranking_options")
    read_filter(filters, f"{where}.filters")
    read_ranking(ranking, f"{where}.ranking_options")
    pages = bool(tool.get("shown_as_pages"))
    return {"ids": ids, "most": most, "ranking": ranking, "filters": filters, "pages": pages}


def shows_files(options: Mapping[str, Any]) -> bool:
    """Whether the items of the browser's calls are those of a file search."""
    return FILES in options and "web" not in options and not options[FILES]["pages"]


async def check_stores(stores: VectorStores, options: Mapping[str, Any], now: int) -> None:
    """Raises a 404 for a store that does not exist, and a 400 for a ranking that the server does not have.

    The time without use of the stores begins again.
    """
    ranking = read_ranking(options["ranking"], "ranking_options")
    check_ranking(ranking, embeds=stores.embeddings is not None, param="tools")
    for store_id in options["ids"]:
        if (store := await stores.get(store_id)) is None:
            raise NotFound(f"There is no vector store {store_id!r:.100}.", param="tools")
        await stores.used(store, now)


class FilesAndWeb:
    """A backend of the browser that searches the files of a request, the web, or both."""

    def __init__(self, files: VectorStores, web: Backend | None) -> None:
        self._files = files
        self._web = web

    async def search(self, request: SearchRequest) -> Sequence[SearchHit]:
        of_files: Sequence[SearchHit] = ()
        of_web: Sequence[SearchHit] = ()
        if (options := request.options.get(FILES)) is not None:
            of_files = await self._search(request, options)
        if self._web is not None and request.options.get("web"):
            of_web = await self._web.search(request)
        return [hit for hit in chain(*zip_longest(of_files, of_web)) if hit is not None]

    async def _search(self, request: SearchRequest, options: Mapping[str, Any]) -> list[SearchHit]:
        most = min(request.limit, options["most"] or request.limit)
        filters = read_filter(options["filters"], "filters")
        ranking = read_ranking(options["ranking"], "ranking_options")
        stores = self._files.of(options["owner"])
        found = await stores.find(options["ids"], [request.query], 3 * most, filters, ranking)
        best = {each.entry.file_id: each for each in reversed(found)}
        hits = [each for each in found if best.get(each.entry.file_id) is each][:most]
        words = words_of_query(request.query)
        return await asyncio.to_thread(lambda: [_hit(each, words, request.snippet_chars) for each in hits])

    async def read(self, request: ReadRequest) -> Document:
        from tools.browser.pages.document import Document, PageError

        named, options = _URL.match(request.url), request.options.get(FILES)
        if named is None and self._web is not None and request.options.get("web"):
            return await self._web.read(request)
        if named is None or options is None:
            raise PageError("Only the files that a search finds can be opened.")
        kept = await self._files.of(options["owner"]).text(options["ids"], unquote(named[1]))
        if kept is None:
            raise PageError("There is no such file. Search for files.")
        entry, text = kept
        return Document(url_of(entry.file_id, entry.filename), entry.filename, text)

    async def close(self) -> None:
        if self._web is not None:
            await self._web.close()


def _hit(found: Found, words: Sequence[str], snippet_chars: int) -> SearchHit:
    from tools.browser.backends.base import SearchHit
    from tools.browser.pages.text import best_lines

    entry = found.entry
    details = {
        "file_id": entry.file_id,
        "filename": entry.filename,
        "score": found.score,
        "attributes": dict(entry.attributes),
        "text": found.passage.text,
    }
    shown = best_lines(found.passage.text, words, snippet_chars)
    return SearchHit(url_of(entry.file_id, entry.filename), entry.filename, *shown, details)


def url_of(file_id: str, filename: str) -> str:
    return f"file-search://{quote(file_id, safe='')}/{quote(filename, safe='')}"


def annotation_of(citation: Citation) -> Item:
    """The annotation of a citation: of a file, or of a page."""
    if (file := _URL.match(citation.url)) is not None:
        named = {"file_id": unquote(file[1]), "filename": citation.title}
        return {"type": "file_citation", **named, "index": citation.start_index}
    place = {"start_index": citation.start_index, "end_index": citation.end_index}
    return {"type": "url_citation", **place, "url": citation.url, "title": citation.title}


class FileSearchBuilder(ServerCall):
    """A call of the browser in a request whose only source are files."""

    about = "A call of the browser over files: a search, an opened file, or a text looked for in one."
    about_events: ClassVar[EventTexts] = {
        "response.file_search_call.in_progress": "A call of the browser over files begins.",
        "response.file_search_call.searching": "The files are searched.",
        "response.file_search_call.completed": "The search has ended, or failed: the item states which.",
    }
    kind = "file_search_call"
    runs = "searching"

    def __init__(self, call: HostedCall) -> None:
        super().__init__(f"fs_{call.id.partition('_')[2]}")
        self._shows_results = RESULTS in call.include

    def item(self, status: str, text: str, output: ToolOutput | None = None) -> Item:
        arguments = json_object(text)
        query = arguments.get("query") or arguments.get("pattern")
        keys = ("file_id", "filename", "score", "attributes", "text")
        found = () if output is None else output.details.get("results", ())
        results = [{key: hit[key] for key in keys} for hit in found if "file_id" in hit]
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            "queries": [query] if isinstance(query, str) else [],
            "results": results if self._shows_results else None,
        }


def _read_call(item: Item, where: str, conversation: Conversation) -> None:
    """An earlier search of files, with its result if the item carries it or the server still has it."""
    renderer, queries = conversation.renderer, item.get("queries")
    query = queries[0] if isinstance(queries, list) and queries else ""
    written = "\n\n".join(
        f"{hit.get('filename')}\n{hit.get('text')}" for hit in dicts_of(item.get("results"))
    )
    result = conversation.results.get(str(item.get("id"))) or written or NOT_KEPT
    arguments = to_json({"query": str(query)}).decode()
    conversation.segments += (
        renderer.call("browser.search", arguments, channel="analysis", content_type="code"),
        renderer.tool_result("browser.search", result, channel="analysis"),
    )


FILE_SEARCH_CALL = ItemKind((ItemType("file_search_call", _read_call, "fs", listed=completed),))
