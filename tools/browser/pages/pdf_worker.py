"""A standalone program: takes a PDF on standard input and writes JSON with its title and its pages' texts.

PDFs resemble programs, and pypdf is pure Python, so one file can take any amount of time and memory. A
process of its own has limits, can be ended, and blocks no other work. Run by path with `python -I`; it
imports nothing from this project.
"""

from __future__ import annotations

import io
import json
import logging
import sys

MAX_PAGES = 1_000
MAX_CHARS = 4_000_000
MAX_MEMORY = 2 * 1024**3


def limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def read(data: bytes) -> dict[str, object]:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "it is encrypted with a password"}
    total = len(reader.pages)
    pages: list[str] = []
    chars = 0
    for number in range(min(total, MAX_PAGES)):
        if chars > MAX_CHARS:
            break
        pages.append(reader.pages[number].extract_text())
        chars += len(pages[-1])
    title = reader.metadata.title if reader.metadata else None
    return {"title": str(title or ""), "pages": pages, "total": total}


def main() -> None:
    logging.disable(logging.CRITICAL)  # pypdf reports every flaw that it reads past
    limit_memory()
    try:
        answer = read(sys.stdin.buffer.read())
    except Exception as error:  # report any error that a broken file causes in pypdf
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
