"""A standalone program: takes bodies on standard input, one by one, and writes JSON. `worker.py markup|pdf`.

Some pages take quadratic time to parse, a few tags can multiply the memory, and a PDF can take any amount of
both: a process has limits, can be ended, and blocks no other work. One for markup is used for many pages,
because starting it takes longer than nearly any page. Run by path with `python -I`: neither the environment
nor the current folder decides what is imported. A body is a head (see `HEAD`), the JSON of its address and
type, and its bytes; an answer is its length, eight bytes, and JSON.
"""

import json
import logging
import os
import resource
import select
import signal
import struct
import sys
from pathlib import Path
from typing import Any

HEAD = struct.Struct(">IQ")  # bytes of JSON, bytes of the body
MAX_MEMORY, MAX_PDF_MEMORY = 1024**3, 2 * 1024**3
# Processor time for markup, about twice what an ordinary page of that size takes.
PAGE_SECONDS, SECONDS_PER_BYTE = 1.0, 1.2e-6
IDLE_SECONDS = 300.0
_ROOT = Path(__file__).resolve().parents[3]


def limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)


def answer(head: dict[str, Any], data: bytes) -> dict[str, object]:
    from tools.browser.pages.body import convert_body
    from tools.browser.pages.document import PageBody, PageError

    body = PageBody(str(head["url"]), str(head["content_type"]), data, bool(head["cut"]))
    try:
        document = convert_body(body, head["kind"])
    except PageError as error:
        return {"error": str(error)}
    return {"title": document.title, "text": document.text, "links": document.links, "note": document.note}


def exactly(length: int) -> bytes:
    """This many bytes of standard input; ends the program where the input ends."""
    data = sys.stdin.buffer.read(length)
    if len(data) < length:
        sys.exit(0)
    return data


def main() -> None:
    sys.path.insert(0, str(_ROOT))
    logging.disable(logging.CRITICAL)  # pypdf reports every flaw that it reads past
    markup = sys.argv[1] == "markup"
    limit(MAX_MEMORY if markup else MAX_PDF_MEMORY)
    from tools.browser.pages import body  # loads what pages need before the first arrives

    assert body
    while select.select([0], [], [], IDLE_SECONDS)[0]:
        length, size = HEAD.unpack(exactly(HEAD.size))
        head, data = json.loads(exactly(length)), exactly(size)
        if markup:  # its signal ends this process
            signal.setitimer(signal.ITIMER_PROF, PAGE_SECONDS + SECONDS_PER_BYTE * size)
        written = json.dumps(answer(head, data), ensure_ascii=False).encode("utf-8", "replace")
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(struct.pack(">Q", len(written)) + written)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
