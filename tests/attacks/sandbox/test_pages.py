"""Pages that take long to parse, all at the same time."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.doubles.attacked import LONGEST_WAIT
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, PageBody, PageError

PAGES = {
    "40,000 deep": b"<div>" * 40_000,
    "300,000 deep": b"<div>" * 300_000,
    "deep and closed": b"<blockquote>" * 100_000 + b"</blockquote>" * 100_000,
    "attributes": b"<a " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
    "formats that every paragraph repeats": (
        b"".join(b"<b id=%d>" % number for number in range(5_000)) + b"<p>x" * 50_000
    ),
    "tables": b"<table><tr><td>" * 9_000,
    "one tag": b"<" * 2_000_000,
    "Markdown": b"[" * 300_000 + b"](",
}


async def read(page: bytes, kind: str) -> Document:
    return await convert(PageBody("https://a.example/", kind, page))


@pytest.mark.parametrize("name", PAGES)
async def test_seven_pages_hold_up_neither_the_loop_nor_other_threads(name: str) -> None:
    kind = "text/markdown" if name == "Markdown" else "text/html"
    hostile = [asyncio.create_task(read(PAGES[name], kind)) for _ in range(7)]
    longest = 0.0
    while not all(task.done() for task in hostile):
        began = time.monotonic()
        await asyncio.to_thread(time.sleep, 0.05)
        longest = max(longest, time.monotonic() - began - 0.05)
    answers = await asyncio.gather(*hostile, return_exceptions=True)
    assert all(isinstance(answer, Document | PageError) for answer in answers)
    assert longest < LONGEST_WAIT
    assert (await read(b"<p>Afterwards", "text/html")).text == "Afterwards"
