"""A real server in its own process, on a free port, for tests over HTTP."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

from tests.doubles.processes.forked import Command

START_SECONDS = 90  # generous: the machine may be busy, and a first use may unpack the embedded model


@dataclass(frozen=True)
class Served:
    """A running server. `url` has no path; `api` is a client's base URL."""

    url: str
    process: subprocess.Popen[str]
    greeting: str

    @property
    def api(self) -> str:
        return f"{self.url}/v1"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(
    *flags: str, env: dict[str, str] | None = None, command: Sequence[str] = (), fresh: bool = False
) -> Iterator[Served]:
    """`gpt-oss-server serve` with these flags; by another command or, if `fresh`, in a Python of its own.

    The python tool is off unless a flag names a sandbox, as in `tests.doubles.serving`, or `fresh` asks for a
    server as a user starts it. SIGINT stops it; if that fails, it is killed.
    """
    words = ["serve", "--port", "0", *flags]
    if not fresh and "--python" not in flags:
        words += ["--python", "off"]
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "env": {**os.environ, **(env or {})},
    }
    process: subprocess.Popen[str]
    if command:
        process = subprocess.Popen([*command, *words], **options)
    else:
        process = Command(words, fresh=fresh, **options)
    try:
        yield _await_greeting(process)
    finally:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError("The server did not stop within 10 s of Ctrl-C.") from None
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _await_greeting(process: subprocess.Popen[str]) -> Served:
    """Reads on a thread that never stops reading, as a full pipe would block the server."""
    lines: Queue[str | None] = Queue()

    def read() -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.put(line)
        except ValueError:
            return  # closed by `stop` while this thread waited for a line
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    output = ""
    while True:
        try:
            line = lines.get(timeout=START_SECONDS)
        except Empty:
            raise AssertionError(f"The server did not start within {START_SECONDS} s:\n{output}") from None
        if line is None:
            raise AssertionError(f"The server ended with code {process.wait()}:\n{output}")
        output += line
        if "Ctrl-C" in line and (found := re.search(r"API +(https?://\S+)/v1", output)):
            return Served(found[1], process, output)
