"""A local folder instead of the web: .md, .txt, .html and .pdf, with no key and no network.

Documents have URLs `local:///path/below/the/folder`. The index lives on a thread of its own and is updated
before every search and every page. Domain filters and the user's location have no effect here.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tools.browser.backends.base import ReadRequest, SearchHit, SearchRequest
from tools.browser.backends.local_files import make_url, parse_url, read_document
from tools.browser.backends.local_index import FolderIndex, IndexedFile
from tools.browser.pages.document import Document, PageError, SearchError
from tools.browser.pages.text import best_lines, one_line
from tools.words import words_of_query

T = TypeVar("T")

_SEARCHED_CHARS: Final = 400_000  # of a document, when choosing the lines to show


class LocalBackend:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: FolderIndex | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-index")

    async def search(self, request: SearchRequest) -> Sequence[SearchHit]:
        if not (words := words_of_query(request.query)):
            raise SearchError("The search failed: the query holds no words.")

        def work(index: FolderIndex) -> list[SearchHit]:
            found = index.search(words, request.limit)
            return [_hit(file, words, request.snippet_chars) for file in found]

        return await self._on_thread(work)

    async def read(self, request: ReadRequest) -> Document:
        path = parse_url(request.url)
        if path is None:
            raise PageError("Only the documents of the local folder can be opened; search for them.")
        return await self._on_thread(lambda index: self._read(index, path, request.view_source))

    async def close(self) -> None:
        def end() -> None:
            if self._index is not None:
                self._index.close()
                self._index = None

        if self._index is not None:
            self._index.stop()
        await asyncio.get_running_loop().run_in_executor(self._thread, end)
        self._thread.shutdown()

    async def _on_thread(self, work: Callable[[FolderIndex], T]) -> T:
        def run() -> T:
            if self._index is None:
                self._index = FolderIndex(self._folder)
            self._index.refresh()
            return work(self._index)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _read(self, index: FolderIndex, path: str, view_source: bool) -> Document:
        # Only files that the index lists are opened: a path from a URL never reaches the file system.
        if not index.has(path):
            there = f"There is no document {one_line(path)} in the local folder"
            raise PageError(f"{there}; search for documents.")
        return read_document(self._folder, path, view_source=view_source)


def _hit(file: IndexedFile, words: Sequence[str], snippet_chars: int) -> SearchHit:
    shown = best_lines(file.text[:_SEARCHED_CHARS], words, snippet_chars)
    return SearchHit(make_url(file.path), file.title, *shown)
