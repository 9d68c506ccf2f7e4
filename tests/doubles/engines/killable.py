"""A double of a remote engine in a process of its own, which can be killed and started again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.doubles.engines.vllm_double import VllmDouble


@dataclass
class Killable:
    port: int
    process: subprocess.Popen[str]

    @property
    def model(self) -> str:
        return f"vllm:http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def start_again(self) -> None:
        self.process = _started(self.port)


@contextmanager
def killable_vllm() -> Iterator[Killable]:
    process = _started(0)
    assert process.stdout is not None
    engine = Killable(int(process.stdout.readline()), process)
    try:
        yield engine
    finally:
        engine.kill()


def _started(port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.doubles.engines.killable", str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def _serve(port: int) -> None:
    double = VllmDouble()
    server = await asyncio.start_server(double._serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
