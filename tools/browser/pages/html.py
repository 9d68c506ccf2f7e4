"""Converts HTML and Markdown in processes of their own, which are reused (see html_worker.py).

Takes a page's bytes and returns its title, text and links; raises PageError if that takes too much time or
memory. At most PROCESSES pages are converted at a time, and the others wait their turn, so that hostile pages
hold up neither the event loop nor other threads. Nothing that a process answers is trusted.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools.browser.pages.errors import PageError
from tools.browser.pages.html_worker import HEAD

PROCESSES: Final = 2
SECONDS: Final = 30.0  # on a busy machine; the process itself counts its processor time
MAX_PAGES: Final = 500  # of one process, in case memory leaks
MAX_ANSWER: Final = 64_000_000
_COMMAND: Final = (sys.executable, "-I", str(Path(__file__).with_name("html_worker.py")))
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Read:
    """What a process made of a page."""

    title: str
    text: str
    links: tuple[str, ...]
    note: str


class _Died(Exception):
    """The process ended without an answer."""


class _Retired(_Died):
    """It had ended by itself, in its idle time."""


class _Worker:
    """One process, used by one thread at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self.pages = 0

    def convert(self, head: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        """The answer. Raises _Died, TimeoutError, or ValueError for one that is no answer."""
        deadline = time.monotonic() + SECONDS
        written = json.dumps(head).encode()
        self.pages += 1
        self._write(HEAD.pack(len(written), len(body)) + written + body, deadline)
        (length,) = struct.unpack(">Q", self._read(8, deadline))
        if length > MAX_ANSWER:
            raise ValueError("too long")
        value = json.loads(self._read(length, deadline))
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value

    def _ended(self) -> _Died:
        with suppress(subprocess.TimeoutExpired):  # it only closed its output
            if self._process.wait(1.0) == 0:
                return _Retired()
        return _Died()

    def end(self) -> None:
        self._process.kill()
        with self._process:  # closes the pipes and waits
            return

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._in, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._in, view[:_CHUNK]) :]
            except BrokenPipeError as error:
                raise self._ended() from error

    def _read(self, length: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            self._wait(self._out, select.POLLIN, deadline)
            chunk = os.read(self._out, min(_CHUNK, length - len(parts)))
            if not chunk:
                raise self._ended()
            parts += chunk
        return bytes(parts)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError


class _Workers:
    """The processes: started when first needed, replaced when they end."""

    def __init__(self) -> None:
        self._free: list[_Worker] = []
        self._living = 0
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(PROCESSES)
        self.threads = ThreadPoolExecutor(PROCESSES, thread_name_prefix="browser-html")
        atexit.register(self.close)

    def prepare(self) -> None:
        """Starts a process if there is none, so that it is ready when a page has arrived."""
        with self._lock:
            if not self._living:
                self._free.append(self._started())

    def convert(self, head: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        with self._turns:
            try:
                return self._converted(head, body)
            except _Retired:
                return self._converted(head, body)

    def close(self) -> None:
        with self._lock:
            ended, self._free = self._free, []
        for worker in ended:
            self._end(worker)

    def _converted(self, head: Mapping[str, Any], body: bytes) -> dict[str, Any]:
        with self._lock:
            worker = self._free.pop() if self._free else self._started()
        try:
            answer = worker.convert(head, body)
        except BaseException:
            self._end(worker)
            raise
        if worker.pages >= MAX_PAGES:
            self._end(worker)
        else:
            with self._lock:
                self._free.append(worker)
        return answer

    def _started(self) -> _Worker:
        """The caller holds the lock."""
        worker = _Worker()
        self._living += 1
        return worker

    def _end(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._living -= 1


@cache
def _workers() -> _Workers:
    return _Workers()


def prepare() -> None:
    """Starts a process in the background, e.g. while the page is still being fetched."""
    workers = _workers()
    workers.threads.submit(workers.prepare)


async def read_page(head: Mapping[str, Any], body: bytes) -> Read:
    """Converts a page; `head` is its `url`, `content_type`, `kind` and `cut`."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_workers().threads, read_page_blocking, head, body)


def read_page_blocking(head: Mapping[str, Any], body: bytes) -> Read:
    """The same for a thread without an event loop."""
    try:
        answer = _workers().convert(head, body)
    except (_Died, TimeoutError) as error:
        raise PageError("This page takes too much time or memory to read.") from error
    except ValueError as error:
        raise PageError("This page could not be read.") from error
    if "error" in answer:
        raise PageError(str(answer["error"]))
    title, text, note = (str(answer.get(name, "")) for name in ("title", "text", "note"))
    with suppress(TypeError):
        return Read(title, text, tuple(map(str, answer.get("links", ()))), note)
    raise PageError("This page could not be read.")
