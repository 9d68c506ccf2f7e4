"""Converts bodies in processes of their own (see worker.py): one kind of process for markup, one for PDF.

Raises PageError if that takes too much time or memory. At most PROCESSES bodies of a kind are converted at a
time, so that hostile pages hold up neither the event loop nor other threads; one of them is kept from each
owner, so that the pages of others are read meanwhile. Nothing that a process answers is trusted.
"""

import atexit
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tools.browser.pages.document import MAX_CHARS, Document, Kind, PageBody, PageError
from tools.browser.pages.text import clean
from tools.browser.pages.worker import HEAD
from tools.fair_threads import FairThreads

PROCESSES: Final = 2
# On a busy machine; a process for markup itself counts its processor time.
SECONDS: Final = {"markup": 30.0, "pdf": 60.0, "office": 60.0}
MAX_BODIES: Final = {"markup": 500, "pdf": 1, "office": 1}  # of one process, in case memory leaks
MAX_ANSWER: Final = 64_000_000
_COMMAND: Final = (sys.executable, "-I", str(Path(__file__).with_name("worker.py")))
_CHUNK: Final = 1 << 20
_LOOK_SECONDS: Final = 0.1  # between two looks whether the work is still wanted
_FILES: Final = {"pdf": "This PDF", "office": "This document"}
_TOO_MUCH: Final = "This page takes too much time or memory to read."


class _Died(Exception):
    """The process ended without an answer."""


class _Worker:
    def __init__(self, kind: str) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        command = (*_COMMAND, kind)
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._in, False)
        self.bodies = 0
        self._deadline = 0.0
        self._unwanted = threading.Event()

    def convert(
        self, body: PageBody, kind: Kind, seconds: float, unwanted: threading.Event
    ) -> dict[str, Any]:
        """The answer. Raises _Died, TimeoutError, or ValueError for one that is no answer."""
        self._deadline, self._unwanted = time.monotonic() + seconds, unwanted
        head = {"url": body.url, "content_type": body.content_type, "cut": body.cut, "kind": kind}
        written = json.dumps(head).encode()
        self.bodies += 1
        self._write(HEAD.pack(len(written), len(body.data)) + written + body.data)
        (length,) = struct.unpack(">Q", self._read(8))
        if length > MAX_ANSWER:
            raise ValueError("too long")
        value = json.loads(self._read(length))
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value

    def end(self) -> None:
        self.process.kill()
        with self.process:  # closes the pipes and waits
            return

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._in, select.POLLOUT)
            try:
                view = view[os.write(self._in, view[:_CHUNK]) :]
            except BrokenPipeError as error:
                raise _Died from error

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            self._wait(self._out, select.POLLIN)
            chunk = os.read(self._out, min(_CHUNK, length - len(parts)))
            if not chunk:
                raise _Died
            parts += chunk
        return bytes(parts)

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while not poll.poll(_LOOK_SECONDS * 1000):
            if self._unwanted.is_set() or time.monotonic() > self._deadline:
                raise TimeoutError


class _Workers:
    """The processes of one kind: started when first needed, replaced when they end."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._file = _FILES.get(kind)
        self._free: list[_Worker] = []
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(PROCESSES)
        self.threads = FairThreads(PROCESSES, f"browser-{kind}")
        atexit.register(self.close)

    def read(self, body: PageBody, kind: Kind, unwanted: threading.Event) -> Document:
        """Converts a body; the thread waits for its turn. Stops soon when it is no longer wanted."""
        try:
            with self._turns:
                answer = self._answer(body, kind, unwanted)
        except TimeoutError as error:
            raise PageError(f"{self._file} takes too long to read." if self._file else _TOO_MUCH) from error
        except _Died as error:
            died = f"{self._file} could not be read: it needs too much memory."
            raise PageError(died if self._file else _TOO_MUCH) from error
        except ValueError as error:
            raise PageError("This page could not be read.") from error
        if "error" in answer:
            raise PageError(str(answer["error"]))
        title, text, note = (str(answer.get(name, "")) for name in ("title", "text", "note"))
        with suppress(TypeError):
            links = tuple(map(str, answer.get("links", ())))
            return Document(body.url, clean(title), text[:MAX_CHARS], links, clean(note))
        raise PageError("This page could not be read.")

    def close(self) -> None:
        with self._lock:
            ended, self._free = self._free, []
        for worker in ended:
            worker.end()

    def _answer(self, body: PageBody, kind: Kind, unwanted: threading.Event) -> dict[str, Any]:
        worker = self._next()
        try:
            answer = worker.convert(body, kind, SECONDS[self._kind], unwanted)
        except BaseException:
            worker.end()
            raise
        if worker.bodies >= MAX_BODIES[self._kind]:
            worker.end()
        else:
            with self._lock:
                self._free.append(worker)
        return answer

    def _next(self) -> _Worker:
        with self._lock:
            while self._free:
                worker = self._free.pop()
                if worker.process.poll() is None:
                    return worker
                worker.end()  # it ended by itself, in its idle time
        return _Worker(self._kind)


@cache
def workers(kind: str) -> _Workers:
    return _Workers(kind)


async def read_page(body: PageBody, kind: Kind, owner: str = "") -> Document:
    """Converts a body. Cancelling ends the process."""
    pool, unwanted = _pool(kind), threading.Event()
    try:
        return await pool.threads.run(owner, partial(pool.read, body, kind, unwanted))
    finally:
        unwanted.set()


def read_page_blocking(body: PageBody, kind: Kind) -> Document:
    """The same for a thread without an event loop."""
    return _pool(kind).read(body, kind, threading.Event())


def _pool(kind: Kind) -> _Workers:
    return workers(kind if kind in ("pdf", "office") else "markup")
