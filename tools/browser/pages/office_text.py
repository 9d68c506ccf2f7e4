"""Converts DOCX, PPTX and XLSX to text, with python-docx, python-pptx and openpyxl; raises PageError.

Their files are archives, of which a small one can unpack to any size: see worker.py. Headings, slides and
sheets begin with `#`, so that a reader can cite them; the cells of a row stand on one line.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from tools.browser.pages.document import MAX_CHARS, Document, PageError
from tools.browser.pages.text import clean
from tools.extras import how_to_install

OLE: Final = b"\xd0\xcf\x11\xe0"  # documents of Office before 2007, and encrypted ones
ZIP: Final = b"PK\x03\x04"
MAX_UNPACKED: Final = 256_000_000
_MAX_FILES: Final = 20_000


def office_to_text(data: bytes, url: str) -> Document:
    if data.startswith(OLE):
        raise PageError(
            "This document is encrypted, or older than DOCX, PPTX and XLSX. Save it as one of these."
        )
    try:
        title, lines = _reader(data)(io.BytesIO(data))
        text = _joined(lines)
    except PageError:
        raise
    except ImportError as error:
        raise PageError(how_to_install(error)) from error
    except MemoryError as error:
        raise PageError("This document needs too much memory to read.") from error
    except Exception as error:  # any error that a broken file causes in the libraries
        reason = f"{type(error).__name__}: {error}"[:300]
        raise PageError(f"This document could not be read: {clean(reason)}.") from error
    if not text.strip():
        raise PageError("This document holds no text.")
    note = "Only the first part of this document was read: it is too long." if len(text) > MAX_CHARS else ""
    return Document(url, clean(title or ""), text[:MAX_CHARS], note=note)


def _reader(data: bytes) -> Callable[[io.BytesIO], tuple[str, Iterator[str]]]:
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            files = archive.infolist()
    except BadZipFile as error:
        raise PageError("This document is damaged or cut off: it is no whole archive.") from error
    if len(files) > _MAX_FILES or sum(file.file_size for file in files) > MAX_UNPACKED:
        raise PageError(f"This document unpacks to more than {MAX_UNPACKED:,} bytes.")
    names = {file.filename for file in files}
    for name, reader in _READERS.items():
        if name in names:
            return reader
    raise PageError("This archive is no DOCX, PPTX or XLSX. Send the files in it.")


def _docx(file: io.BytesIO) -> tuple[str, Iterator[str]]:
    import docx
    from docx.table import Table

    document = docx.Document(file)

    def lines() -> Iterator[str]:
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                yield from (_row(cell.text for cell in row.cells) for row in block.rows)
                continue
            style = block.style.name if block.style is not None else ""
            level = style.removeprefix("Heading ") if style else ""
            yield f"{'#' * int(level)} {block.text}" if level in tuple("123456") else block.text
            yield ""

    return document.core_properties.title, lines()


def _pptx(file: io.BytesIO) -> tuple[str, Iterator[str]]:
    import pptx

    deck = pptx.Presentation(file)

    def shown(shapes: Iterable[Any]) -> Iterator[str]:
        for shape in shapes:
            if shape.has_text_frame:
                yield shape.text_frame.text
            elif getattr(shape, "has_table", False):
                yield from (_row(cell.text for cell in row.cells) for row in shape.table.rows)
            elif hasattr(shape, "shapes"):
                yield from shown(shape.shapes)

    def lines() -> Iterator[str]:
        for number, slide in enumerate(deck.slides, 1):
            notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
            yield from (f"# Slide {number}", "", *shown(slide.shapes), notes.text if notes else "", "")

    return deck.core_properties.title, lines()


def _xlsx(file: io.BytesIO) -> tuple[str, Iterator[str]]:
    import openpyxl

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)

    def lines() -> Iterator[str]:
        for sheet in book.worksheets:
            rows = (
                _row("" if cell is None else str(cell) for cell in row)
                for row in sheet.iter_rows(values_only=True)
            )
            yield from chain((f"# Sheet {sheet.title}", ""), filter(None, rows), ("",))

    return book.properties.title or "", lines()


def _row(cells: Iterable[str]) -> str:
    return " | ".join(cell.replace("\n", " ") for cell in cells).rstrip(" |")


def _joined(lines: Iterable[str]) -> str:
    kept: list[str] = []
    length = 0
    for line in lines:
        kept.append(clean(line))
        length += len(kept[-1]) + 1
        if length > MAX_CHARS:
            break
    return "\n".join(kept)


_READERS: Final = {"word/document.xml": _docx, "ppt/presentation.xml": _pptx, "xl/workbook.xml": _xlsx}
