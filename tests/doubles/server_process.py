"""A real server in its own process, on a free port, for tests over HTTP; waits until programs are ready."""

import asyncio
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.doubles.processes.forked import Command

T = TypeVar("T")
START_SECONDS = 240  # generous: vLLM may take minutes, and the machine may be busy


@dataclass(frozen=True)
class Served:
    """A running server. `url` has no path; `api` is a client's base URL."""

    url: str
    process: subprocess.Popen[str]
    greeting: str
    lines: list[str] = field(default_factory=list)  # all that it has printed so far

    @property
    def api(self) -> str:
        return f"{self.url}/v1"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def await_ready(
    process: subprocess.Popen[Any],
    look: Callable[[], T | None],
    log: Callable[[], str] = lambda: "",
    seconds: float = 120,
) -> T:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}: {log()}"
        assert time.monotonic() < deadline, f"{process.args!r} was not ready within {seconds:g} s: {log()}"
        time.sleep(0.05)
    return found


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


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
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": {**os.environ, **(env or {})}, **OUTPUT}
    process: subprocess.Popen[str]
    if command:
        process = subprocess.Popen([*command, *words], **options)
    else:
        process = Command(words, fresh=fresh, **options)
    try:
        yield greeted(process)
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


OUTPUT: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
"""The options of a process that `greeted` reads."""


def greeted(process: subprocess.Popen[str]) -> Served:
    """Reads on a thread that never stops reading, as a full pipe would block the server."""
    lines: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        try:
            lines.extend(process.stdout)
        except ValueError:
            return  # closed by `stop` while this thread waited for a line

    def look() -> re.Match[str] | None:
        output = "".join(lines)
        return re.search(r"API +(https?://\S+)/v1", output) if "Ctrl-C" in output else None

    threading.Thread(target=read, daemon=True).start()
    found = await_ready(process, look, lambda: "".join(lines), START_SECONDS)
    return Served(found[1], process, "".join(lines), lines)


@dataclass
class ServerProcess:
    flags: Sequence[str]
    log: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        words = ["serve", "--port", str(self.port), *self.flags]
        with self.log.open("ab") as log:
            self.process = Command(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def ready(self) -> None:
        assert self.process is not None
        look, log = partial(answers, f"{self.url}/models"), partial(self.log.read_text, errors="replace")
        await asyncio.to_thread(await_ready, self.process, look, log)

    def send(self, sign: int) -> None:
        assert self.process is not None
        self.process.send_signal(sign)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@asynccontextmanager
async def started(*servers: ServerProcess) -> AsyncIterator[None]:
    try:
        for server in servers:
            server.start()
        for server in servers:
            await server.ready()
        yield
    finally:
        for server in servers:
            server.kill()


class Client:
    """Asks the servers in turn, and another one where one does not answer."""

    def __init__(self, servers: Sequence[ServerProcess], seed: int = 0) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._http = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None))
        self.refused: list[int] = []  # the statuses of answers that a client may retry

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        while True:
            server = self._random.choice(self._servers)
            try:
                answer = await self._http.request(method, server.url + path, **options)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            if answer.status_code != 503:
                return answer
            self.refused.append(answer.status_code)
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        await self._http.aclose()
