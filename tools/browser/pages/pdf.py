"""Converts PDF to text, with pypdf in a process of its own (see pdf_worker.py).

Takes bytes and returns the text; raises PageError if there is none. Cancelling ends the process.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.browser.pages.errors import PageError
from tools.browser.pages.text import clean

SECONDS: Final = 60.0
# -I: neither the environment nor the current folder decides what is imported.
_COMMAND: Final = (sys.executable, "-I", str(Path(__file__).with_name("pdf_worker.py")))


@dataclass(frozen=True, slots=True)
class PdfText:
    title: str
    text: str
    note: str = ""


async def read_pdf(data: bytes) -> PdfText:
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await process.communicate(data)
    except TimeoutError as error:
        raise PageError("This PDF takes too long to read.") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _read_answer(answer)


def read_pdf_blocking(data: bytes) -> PdfText:
    """The same for a thread without an event loop."""
    try:
        done = subprocess.run(
            _COMMAND,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PageError("This PDF takes too long to read.") from error
    return _read_answer(done.stdout)


def _read_answer(answer: bytes) -> PdfText:
    try:
        read = json.loads(answer)
    except ValueError as error:  # the process ended without an answer, e.g. for lack of memory
        raise PageError("This PDF could not be read: it needs too much memory.") from error
    if "error" in read:
        raise PageError(f"This PDF could not be read: {clean(read['error'])}.")
    pages, total = read["pages"], read["total"]
    text = "\n\n".join(f"# Page {number}\n\n{clean(page).strip()}" for number, page in enumerate(pages, 1))
    if not any(page.strip() for page in pages):
        raise PageError("This PDF holds no text, only images.")
    note = f"Only the first {len(pages)} of {total} pages were read." if len(pages) < total else ""
    return PdfText(clean(read["title"]), text, note)
