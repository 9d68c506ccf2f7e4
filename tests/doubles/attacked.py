"""A server to attack: in a process of its own within a hard limit of memory, probed for its health meanwhile.

`attacked` starts one for a test. `under_probe` asks for its health every 50 ms and returns the longest wait
and the memory that it took; the figures of all attacks are printed as one table (tests/attacks/conftest.py).
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.doubles.server_process import OUTPUT, Served, greeted

EVERY = 0.05
# Seconds. A quiet machine keeps 0.25; others measure the machine as well.
LONGEST_WAIT = float(os.environ.get("ATTACKS_LONGEST_WAIT", "1.5"))
MOST_MEMORY = 512 * 1024**2  # above that of the server before the attack
_MOST_ADDRESSES = 24 * 1024**2  # KiB of address space: torch and the model take a third of it
_PROBE_TIMEOUT = 60.0


class Attacked(Served):
    def connect(self, timeout: float = 60.0) -> socket.socket:
        parts = urlsplit(self.url)
        return socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=timeout)

    def memory(self) -> int:
        """The most bytes of the process that have been resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        [most] = re.findall(r"VmHWM:\s+(\d+)", status)
        return int(most) * 1024

    def errors(self) -> str:
        """The lines of the log that a user would take for a defect."""
        return "".join(line for line in self.lines if "Traceback" in line or " ERROR " in line)


@contextmanager
def attacked(*flags: str, model: str = "tiny") -> Iterator[Attacked]:
    limited = ("sh", "-c", f'ulimit -v {_MOST_ADDRESSES}; exec "$@"', "sh")
    command = [*limited, sys.executable, "-m", "gpt_oss_server", "serve", "--port", "0", "--model", model]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process: subprocess.Popen[str] = subprocess.Popen(
        [*command, "--python", "off", *flags], stdin=subprocess.DEVNULL, env=environment, **OUTPUT
    )
    try:
        server = Attacked(**vars(greeted(process)))
        # Its start is finished by a first request, which takes the interpreter's time too.
        body = {"input": "Hi", "max_output_tokens": 4, "text": {"format": {"type": "json_object"}}}
        assert httpx.post(f"{server.api}/responses", json=body, timeout=120).status_code == 200
        yield server
    finally:
        process.kill()
        process.communicate()  # closes its output


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
            with server.connect(_PROBE_TIMEOUT) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                assert connection.recv(1)
        except OSError:
            probe.waits.append(_PROBE_TIMEOUT)
        probe.waits.append(time.perf_counter() - start)
        if ends.wait(EVERY):
            return
