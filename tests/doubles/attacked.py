"""A server to attack: in a process of its own within a hard limit of memory, probed for its health meanwhile.

`attacked` starts one for a test. `under_probe` asks for its health every 50 ms and returns the longest wait
and the memory that it took; the figures of all attacks are printed as one table (tests/attacks/conftest.py).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 120
EVERY = 0.05
# Seconds. A quiet machine keeps 0.25; others measure the machine as well.
LONGEST_WAIT = float(os.environ.get("ATTACKS_LONGEST_WAIT", "1.5"))
MOST_MEMORY = 512 * 1024**2  # above that of the server before the attack
_MOST_ADDRESSES = 24 * 1024**2  # KiB of address space: torch and the model take a third of it
_PROBE_TIMEOUT = 60.0


@dataclass
class Attacked:
    """A running server."""

    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self, timeout: float = 60.0) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def memory(self) -> int:
        """The most bytes of the process that have been resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) * 1024

    def errors(self) -> str:
        """The lines of the log that a user would take for a defect."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return "\n".join(line for line in lines if "Traceback" in line or " ERROR " in line)


@contextmanager
def attacked(*flags: str, model: str = "tiny") -> Iterator[Attacked]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        limited = ("sh", "-c", f'ulimit -v {_MOST_ADDRESSES}; exec "$@"', "sh")
        command = [*limited, sys.executable, "-m", "gpt_oss_server", "serve", "--port", "0", "--model", model]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--python", "off", *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            server = Attacked("127.0.0.1", _port(process, log), process, log)
            _warm_up(server)
            yield server
        finally:
            process.kill()
            process.wait()


def _warm_up(server: Attacked) -> None:
    """Lets the server finish its start, which takes the interpreter's time too."""
    body = {"input": "Hi", "max_output_tokens": 4, "text": {"format": {"type": "json_object"}}}
    connection = http.client.HTTPConnection(server.host, server.port, timeout=START_SECONDS)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/responses", body=json.dumps(body), headers=headers)
    assert connection.getresponse().status == 200
    connection.close()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8")
        if "Ctrl-C" in text and (found := re.search(r"API +http://[^:]+:(\d+)/v1", text)):
            return int(found[1])
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(f"The server did not start within {START_SECONDS} s:\n{log.read_text()}")


@dataclass
class Probe:
    waits: list[float] = field(default_factory=list)
    memory: int = 0

    @property
    def longest(self) -> float:
        return max(self.waits, default=0.0)


FIGURES: list[tuple[str, Probe]] = []
"""Of all attacks of this run."""


@contextmanager
def under_probe(server: Attacked, attack: str) -> Iterator[Probe]:
    """Probes while the block attacks; then checks the waits and the memory."""
    probe, ends = Probe(), threading.Event()
    before = server.memory()
    thread = threading.Thread(target=_keep_probing, args=(server, probe, ends), daemon=True)
    thread.start()
    try:
        yield probe
    finally:
        ends.set()
        thread.join(_PROBE_TIMEOUT + 5)
    probe.memory = server.memory() - before
    FIGURES.append((attack, probe))
    assert server.process.poll() is None, "the server has ended"
    assert probe.longest < LONGEST_WAIT, f"{attack}: /health took {probe.longest:.2f} s"
    assert probe.memory < MOST_MEMORY, f"{attack}: {probe.memory / 2**20:,.0f} MiB more"


def _keep_probing(server: Attacked, probe: Probe, ends: threading.Event) -> None:
    while True:
        start = time.perf_counter()
        try:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=_PROBE_TIMEOUT)
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            connection.close()
        except OSError:
            probe.waits.append(_PROBE_TIMEOUT)
        probe.waits.append(time.perf_counter() - start)
        if ends.wait(EVERY):
            return
