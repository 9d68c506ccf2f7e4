"""A server to attack: in a process of its own within a hard limit of memory, probed for its health meanwhile.

`withstands` compares the longest wait, and the rate of another client's stream, with those before the attack.
The figures of all attacks are printed as one table (tests/attacks/conftest.py).
"""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
def attacked(*flags: str, model: str = "tiny", key: str = "") -> Iterator[Attacked]:
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
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = httpx.post(f"{server.api}/responses", json=body, timeout=120, headers=headers, verify=False)
        assert answer.status_code == 200, answer.text
        yield server
    finally:
        process.kill()
        process.communicate()  # closes its output


@dataclass
class Probe:
    waits: list[float] = field(default_factory=list)
    memory: int = 0
    before: float | None = None  # the longest wait before the attack
    rate: float | None = None  # of the stream beside the attack, as a share of that before it

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


_QUIET = 3.0  # seconds before an attack
_TRIES = 3  # other load may disturb a try
_TIMES = 5  # as long as before the attack may a wait be, where that is more than LONGEST_WAIT
_SHARE = 0.8


def withstands(server: Attacked, attack: str, act: Callable[[], None], *, key: str = "") -> None:
    """Others, who have this key, notice little of the attack. `act` returns when it is over."""
    for attempt in range(1, _TRIES + 1):
        memory, probe = server.memory(), _watched(server, key, act)
        probe.memory = server.memory() - memory
        assert server.process.poll() is None, "the server has ended"
        assert probe.before is not None
        assert probe.rate is not None
        is_quick = probe.longest < max(LONGEST_WAIT, _TIMES * probe.before)
        if (is_quick and probe.rate > _SHARE and probe.memory < MOST_MEMORY) or attempt == _TRIES:
            FIGURES.append((attack, probe))
            assert is_quick, f"{attack}: /health took {probe.longest:.2f} s, before {probe.before:.2f} s"
            assert probe.rate > _SHARE, f"{attack}: the stream had {probe.rate:.0%} of its rate"
            assert probe.memory < MOST_MEMORY, f"{attack}: {probe.memory / 2**20:,.0f} MiB more"
            return


def _watched(server: Attacked, key: str, act: Callable[[], None]) -> Probe:
    command = [sys.executable, "-m", "tests.doubles.watcher", server.url, key]
    watcher = subprocess.Popen(command, **{**OUTPUT, "stderr": None})
    try:
        assert watcher.stdout is not None
        while not watcher.stdout.readline().startswith("event"):
            assert watcher.poll() is None, "the watcher has ended"
        time.sleep(_QUIET)
        began = time.monotonic()
        act()
        ended = time.monotonic()
    finally:
        watcher.terminate()
        lines = [line.split() for line in watcher.communicate()[0].splitlines() if line.count(" ")]
    waits = [(float(when), float(wait)) for kind, when, wait, *_ in (x for x in lines if x[0] == "health")]
    events = [float(line[1]) for line in lines if line[0] == "event"]
    broken = [line for line in lines if line[0] == "broken" and began < float(line[1]) < ended]
    assert not broken, f"the stream broke: {broken[:3]}"
    rates = [
        sum(first < when < last for when in events) / (last - first)
        for first, last in ((began - _QUIET + 1, began), (began, ended))
    ]
    return Probe(
        [wait for when, wait in waits if began - wait < when < ended],
        before=max(wait for when, wait in waits if when + wait < began),
        rate=rates[1] / rates[0],
    )


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
