"""Reads the files of vector stores in the background, a few at a time, of all owners.

Takes files that no process reads yet. Stores their passages, which may then wait for vectors, or why they
cannot be read. A process extends its claim of a file while it works; another claims the file when that
process has died.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from gpt_oss_server.apis.vector_stores.held import while_held
from gpt_oss_server.errors import ApiError, StoreUnavailable
from gpt_oss_server.stores.kinds.keep import Stores
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.vector_stores import Claimed, Passage
from tools.extras import how_to_install

_PAUSE = 5.0  # seconds between looks for files whose process has died
_FILES = 2  # read at a time; converting has two processes for each kind
_PASSAGES = 32  # that one transaction stores
_BYTES_OF_TOKEN = 4  # of UTF-8, on average
_WHITE = 0.2  # the part of a passage, at its end, in which a line or a word should end
_log = logging.getLogger(__name__)
Error = tuple[str, str]


class Ingestion:
    def __init__(self, stores: Stores, lease: float, on_read: Callable[[], None]) -> None:
        self._files = stores.files
        self._stores = stores.vector_stores
        self._lease = lease
        self._on_read = on_read
        self.repeated = Repeated(self._read_all, _PAUSE, "Files of vector stores could not be read")

    async def _read_all(self) -> None:
        async def read_some() -> None:
            while (claimed := await self._stores.claim(self._lease)) is not None:
                try:
                    await self._read(claimed)
                except asyncio.CancelledError:
                    await self._stores.give_back(claimed)
                    raise

        async with asyncio.TaskGroup() as group:
            for _ in range(_FILES):
                group.create_task(read_some())

    async def _read(self, claimed: Claimed) -> None:
        converting = self._converted(claimed)
        read = await while_held(lambda: self._stores.add(claimed, (), self._lease), self._lease, converting)
        if read is None:
            return  # the file was detached or its batch cancelled
        text, error = read
        cut = passages(text, claimed.entry.size, claimed.entry.overlap)
        while some := [passage for passage, _ in zip(cut, range(_PASSAGES), strict=False)]:
            if not await self._stores.add(claimed, some, self._lease):
                return
        await self._stores.finish(claimed, error)
        self._on_read()

    async def _converted(self, claimed: Claimed) -> tuple[str, Error | None]:
        """The text of the file, or why it has none."""
        try:
            from tools.browser.pages.convert import read_named
            from tools.browser.pages.document import PageError
        except ImportError as error:
            return "", ("server_error", f"Files are not read here. {how_to_install(error)}")
        try:
            name, data = await self._files.of(claimed.owner).whole(claimed.entry.file_id, "file_id")
            document = await read_named(name, data, claimed.owner)
        except PageError as error:
            return "", ("unsupported_file", str(error))
        except StoreUnavailable:
            raise
        except ApiError as error:
            return "", ("invalid_file", error.message)
        except Exception:
            _log.exception("The file %s of a vector store could not be read.", claimed.entry.file_id)
            return "", (
                "server_error",
                "The server failed while it read this file. Its log contains the cause.",
            )
        if document.note:
            return "", ("invalid_file", f"{document.note} Split the file.")
        return document.text, None


def passages(text: str, size: int, overlap: int) -> Iterator[Passage]:
    """Parts of `size` tokens, each repeating the last `overlap` of the one before; they end with words."""
    if not text:
        return
    of_token = _BYTES_OF_TOKEN * len(text) / len(text.encode())
    most, repeated = max(int(size * of_token), 1), int(overlap * of_token)
    start = 0
    while True:
        end = _end(text, start, start + most)
        yield Passage(start, text[start:end])
        if end == len(text):
            return
        start = max(_end(text, start, end - repeated), start + 1) if repeated else end


def _end(text: str, start: int, end: int) -> int:
    """The end of the last line, else of the last word, shortly before `end`."""
    if end >= len(text):
        return len(text)
    least = end - int((end - start) * _WHITE)
    return next((at + 1 for mark in ("\n", " ") if (at := text.rfind(mark, least, end)) >= 0), end)
