"""Servers in processes of their own that share a store, to be killed, paused and restarted."""

import asyncio
import random
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.processes.forked import Command
from tests.doubles.server_process import answers, await_ready, free_port


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
