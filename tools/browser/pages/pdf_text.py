"""Converts PDF to text, page by page, with pypdf; raises PageError if there is no text.

PDFs resemble programs, so one file can take any amount of time and memory: see worker.py.
"""

import io
from typing import Final

from tools.browser.pages.document import Document, PageError
from tools.browser.pages.text import clean

MAX_PAGES: Final = 1_000
MAX_CHARS: Final = 4_000_000


def pdf_to_text(data: bytes, url: str) -> Document:
    try:
        title, pages, total = _read(data)
    except PageError:
        raise
    except Exception as error:  # any error that a broken file causes in pypdf
        reason = f"{type(error).__name__}: {error}"[:300]
        raise PageError(f"This PDF could not be read: {clean(reason)}.") from error
    text = "\n\n".join(f"# Page {number}\n\n{clean(page).strip()}" for number, page in enumerate(pages, 1))
    if not any(page.strip() for page in pages):
        raise PageError("This PDF holds no text, only images.")
    note = f"Only the first {len(pages)} of {total} pages were read." if len(pages) < total else ""
    return Document(url, clean(title), text, note=note)


def _read(data: bytes) -> tuple[str, list[str], int]:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise PageError("This PDF could not be read: it is encrypted with a password.")
    pages: list[str] = []
    chars = 0
    for number in range(min(len(reader.pages), MAX_PAGES)):
        if chars > MAX_CHARS:
            break
        pages.append(reader.pages[number].extract_text())
        chars += len(pages[-1])
    title = reader.metadata.title if reader.metadata else None
    return str(title or ""), pages, len(reader.pages)
