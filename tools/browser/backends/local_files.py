"""The documents of a folder: their local:// URLs, their text for the index, and their pages.

No URL and no message holds more of a path than the part below the folder. Names that are not UTF-8 carry lone
surrogates, as in Python: their URLs hold the original bytes, their titles one mark for each.
"""

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote, unquote

from tools.browser.pages.convert import convert_blocking
from tools.browser.pages.document import BrowserError, Document, Kind, PageBody, PageError
from tools.browser.pages.links import LOCAL
from tools.browser.pages.text import clean, without_markers

MAX_BYTES: Final = 32_000_000
KINDS: Final[dict[str, Kind]] = {
    ".md": "markdown", ".markdown": "markdown", ".txt": "text", ".html": "html", ".htm": "html",
    ".pdf": "pdf",
}  # fmt: skip


def make_url(path: str) -> str:
    return f"{LOCAL}/{quote(path, errors='surrogateescape')}"


def parse_url(url: str) -> str | None:
    """The relative path of a local:// URL, however the URL was shortened; None for other URLs."""
    if not url.startswith(LOCAL):
        return None
    written = url.removeprefix(LOCAL).partition("#")[0].partition("?")[0]
    return unquote(written, errors="surrogateescape").strip("/")


def read_file(folder: Path, path: str) -> tuple[str, str]:
    """The title and text for the index. A file that cannot be read is indexed by its name alone."""
    try:
        document = read_document(folder, path, view_source=False)
    except BrowserError:
        return clean(PurePosixPath(path).name), ""
    return document.title, "\n".join(without_markers(document.text.split("\n")))


def read_document(folder: Path, path: str, *, view_source: bool) -> Document:
    """The page of a file that `list_files` returned. Slow; run it on a thread."""
    kind = KINDS[PurePosixPath(path).suffix.lower()]
    try:
        with (folder / path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PageError(f"The file {clean(path)} cannot be read ({error.strerror}).") from error
    cut = len(data) > MAX_BYTES
    url, name = make_url(path), clean(PurePosixPath(path).name)
    document = convert_blocking(PageBody(url, "", data[:MAX_BYTES], cut), kind, view_source=view_source)
    return replace(document, title=document.title or name)
