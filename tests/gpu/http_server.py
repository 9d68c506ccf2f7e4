"""The server under measurement: started as a user starts it, and always stopped."""

import ctypes
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.doubles.engines.processor_time import seconds_of_threads
from tests.doubles.server_process import free_port

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
FLAGS = ("--python", "off", "--browser", "off", "--shutdown-grace", "1s")
PARENT_DEATH_SIGNAL = 1  # prctl's number


class Server:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def request(self, method: str, path: str, body: object = None, timeout: float = 10.0) -> Any:
        """The decoded answer; a status of 400 or more is a `RuntimeError`."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: status {answer.status}: {text[:300]}")
        return json.loads(text)

    def counters(self) -> Any:
        return self.request("GET", "/health")["counters"]

    def wait(self, limit: float) -> float:
        """Seconds until the server answers. Raises `RuntimeError` if it ends or does not answer in time."""
        began = time.monotonic()
        while time.monotonic() - began < limit:
            if self.process.poll() is not None:
                raise RuntimeError(f"The server ended with code {self.process.returncode}.")
            with suppress(OSError, http.client.HTTPException, RuntimeError):
                self.request("GET", "/health", timeout=2.0)
                return time.monotonic() - began
            time.sleep(0.05)
        raise RuntimeError(f"The server did not answer within {limit:.0f} s.")

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds so far of the first thread (the event loop) and of the others, by thread id."""
        first = self.process.pid
        threads = seconds_of_threads(first)
        return {"event loop" if id_ == first else str(id_): used for id_, used in threads.items()}


@contextmanager
def serving(model: str, log: Path, more: tuple[str, ...] = ()) -> Iterator[Server]:
    """Starts the server, which does not answer before `wait` returns."""
    port = free_port()
    command = [sys.executable, "-m", "gpt_oss_server", "serve", "--model", model]
    command += ["--host", HOST, "--port", str(port), *FLAGS, *more]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GPT_OSS_SERVER_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip
        try:
            yield Server(process, port)
        finally:
            process.terminate()
            try:
                process.wait(6)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _end_with_parent() -> None:
    """Lets the kernel kill the server when this process ends for any reason."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
