"""A standalone program: takes pages of HTML or Markdown on standard input, one by one, and writes JSON.

Some pages take time that is quadratic in their size to parse as browsers do, and a few tags can multiply the
memory. A process of its own has limits, can be ended, and blocks no other work; it is used for many pages,
because starting it takes longer than nearly any page. Run by path with `python -I`.

A page is a head (see `HEAD`), the JSON of its address and type, and its body. An answer is its length, eight
bytes, and JSON.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys
from pathlib import Path

HEAD = struct.Struct(">IQ")  # bytes of JSON, bytes of the body
MAX_MEMORY = 1024**3
# Processor time, about twice what an ordinary page of that size takes.
PAGE_SECONDS, SECONDS_PER_BYTE = 1.0, 1.2e-6
IDLE_SECONDS = 300.0
_ROOT = Path(__file__).resolve().parents[3]


def limit() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def answer(head: dict[str, object], body: bytes) -> dict[str, object]:
    from tools.browser.pages.body import PageBody, convert_text
    from tools.browser.pages.errors import PageError

    page = PageBody(str(head["url"]), str(head["content_type"]), body, bool(head["cut"]))
    try:
        document = convert_text(page, "markdown" if head["kind"] == "markdown" else "html")
    except PageError as error:
        return {"error": str(error)}
    return {"title": document.title, "text": document.text, "links": document.links, "note": document.note}


def exactly(length: int) -> bytes:
    """So many bytes of standard input; ends the program where the input ends."""
    data = sys.stdin.buffer.read(length)
    if len(data) < length:
        sys.exit(0)
    return data


def main() -> None:
    sys.path.insert(0, str(_ROOT))
    limit()
    from tools.browser.pages import body  # loads what pages need before the first arrives

    assert body
    has_timer = hasattr(signal, "setitimer")
    while not has_timer or select.select([0], [], [], IDLE_SECONDS)[0]:
        length, size = HEAD.unpack(exactly(HEAD.size))
        head, content = json.loads(exactly(length)), exactly(size)
        if has_timer:
            # Its signal ends this process.
            signal.setitimer(signal.ITIMER_PROF, PAGE_SECONDS + SECONDS_PER_BYTE * size)
        written = json.dumps(answer(head, content), ensure_ascii=False).encode("utf-8", "replace")
        if has_timer:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(struct.pack(">Q", len(written)) + written)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
