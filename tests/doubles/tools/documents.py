"""Documents of Office's kinds, made by the libraries that people use."""

import io
import zipfile
from typing import Any

import docx
import openpyxl
import pptx


def _saved(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def docx_of(*paragraphs: str) -> bytes:
    document = docx.Document()
    document.add_heading("Tides", 2)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "hour", "height"
    return _saved(document)


def pptx_of(*texts: str) -> bytes:
    deck = pptx.Presentation()
    for text in texts:
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = text
        slide.notes_slide.notes_text_frame.text = f"Say: {text}"
    return _saved(deck)


def xlsx_of(*rows: tuple[Any, ...]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    return _saved(book)


def bomb(size: int) -> bytes:
    """A DOCX whose text unpacks to `size` bytes."""
    file = io.BytesIO()
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("word/document.xml", "w") as text:
        for _ in range(size // 2**20):
            text.write(bytes(2**20))
    return file.getvalue()
