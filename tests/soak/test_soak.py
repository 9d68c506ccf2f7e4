"""An hour of moderate load in which a fifth of the clients disconnect: nothing grows and nothing leaks.

`make soak` runs it; MINUTES and CLIENTS change its size. It prints what it measured every minute.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.stores.sqlite.database import READERS
from tests.doubles.server_process import ServerProcess, started
from tests.soak.clients import LEAVING, Load

pytestmark = pytest.mark.soak
MINUTES = float(os.environ.get("MINUTES", "60"))
CLIENTS = int(os.environ.get("CLIENTS", "8"))
CONCURRENT = 8
WARM_UP = 0.2  # of the time: caches fill, and what opens at first use is opened
MOST_CHANGE = 0.05  # of the memory, between the beginning and the end of what follows
LONGEST_WAIT = 2.0  # seconds for an easy request; what the tests' own loop waited is the machine's
_EVERY = 5.0
_BETWEEN = 0.1  # seconds between two requests to `/live`
_SETTLING = 120.0  # seconds in which a server that is left alone becomes idle
FLAGS = (
    *("--max-concurrent", str(CONCURRENT), "--background-max-runs", str(CONCURRENT), "--python", "off"),
    # What fills up with time is small, so that it is full after the warm-up.
    *("--kv-memory", "64MiB", "--store-max-responses", "300", "--background-log-max-age", "60"),
    *("--background-log-max-bytes", "4MiB", "--log-level", "warning"),
)


@dataclass(frozen=True)
class Sample:
    minute: float
    memory: int  # bytes that the process itself fills (RssAnon)
    resident: int  # also pages of files, which the machine drops when others need memory
    descriptors: int
    threads: int
    children: int

    @staticmethod
    def of(pid: int, minute: float) -> Sample:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return Sample(
            minute,
            int(fields["RssAnon"].split()[0]) * 1024,
            int(fields["VmRSS"].split()[0]) * 1024,
            len(os.listdir(f"/proc/{pid}/fd")),
            int(fields["Threads"]),
            len(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()),
        )

    def line(self) -> str:
        memory, resident = self.memory / 2**20, self.resident / 2**20
        open_now = f"{self.descriptors} descriptors  {self.threads} threads"
        return f"{self.minute:5.1f} min  {memory:7.1f} MiB of {resident:.1f} resident  {open_now}"


def middles(samples: list[Sample]) -> tuple[float, float]:
    """The median of the memory in the first and in the last 15 % of the time."""
    last = samples[-1].minute
    first = statistics.median(sample.memory for sample in samples if sample.minute <= 0.15 * last)
    return first, statistics.median(sample.memory for sample in samples if sample.minute >= 0.85 * last)


async def counters(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    answer = await client.get(url.removesuffix("/v1") + "/health")
    return answer.json()["counters"]


async def idle(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """The counters of the server once nothing runs or waits in it, or the last ones if that never happens."""
    until = time.monotonic() + _SETTLING
    while True:
        counted = await counters(client, url)
        engine = counted["engine"]
        if not (engine["running"] or engine["waiting"]) or time.monotonic() > until:
            return counted
        await asyncio.sleep(1)


async def under_load(pid: int, load: Load, minutes: float) -> list[Sample]:
    load.stops = False
    samples, _ = await asyncio.gather(sampled(pid, load, minutes), load.run(CLIENTS))
    return samples


async def sampled(pid: int, load: Load, minutes: float) -> list[Sample]:
    start, samples, printed = time.monotonic(), [], -1
    while (minute := (time.monotonic() - start) / 60) < minutes:
        samples.append(Sample.of(pid, minute))
        if int(minute) > printed:
            printed = int(minute)
            print(samples[-1].line(), f" {load.done.total()} answers, {load.left.total()} left", flush=True)
        await asyncio.sleep(_EVERY)
    load.stops = True
    return samples


async def check_all_slots_work(client: httpx.AsyncClient, url: str) -> None:
    """As many background responses as may run are accepted together, and run together."""
    body = {"input": "Tell me a long story.", "background": True, "max_output_tokens": 400, "temperature": 2}
    answers = await asyncio.gather(
        *(client.post(f"{url}/responses", json={**body, "seed": n}) for n in range(CONCURRENT))
    )
    assert [answer.status_code for answer in answers] == [200] * CONCURRENT
    most = 0
    for _ in range(200):
        counted = await counters(client, url)
        most = max(most, counted["engine"]["running"])
        if most == CONCURRENT:
            break
        await asyncio.sleep(0.05)
    assert most == CONCURRENT, f"only {most} of {CONCURRENT} ran together"


async def test_an_hour_of_load_with_clients_that_leave(tmp_path: Path) -> None:
    flags = (*FLAGS, "--store", f"sqlite:{tmp_path / 'store.sqlite'}")
    server = ServerProcess(flags, tmp_path / "server.log")
    async with started(server):
        pid = server.process.pid
        load, waits = Load(server.url), Waits(server.url)
        async with httpx.AsyncClient(timeout=300) as client:
            await under_load(pid, load, WARM_UP * MINUTES)
            before = await open_when_idle(client, server.url, pid, load)
            probing = asyncio.create_task(waits.run())
            samples = await under_load(pid, load, (1 - WARM_UP) * MINUTES)
            probing.cancel()
            with suppress(asyncio.CancelledError):
                await probing
            after = await open_when_idle(client, server.url, pid, load)
            ended = await idle(client, server.url)
            await check_all_slots_work(client, server.url)
        await load.http.aclose()
        print(waits.line())
        check(samples, load, before, after, ended)
        assert max(waits.server) < LONGEST_WAIT + max(waits.own)
        assert "Traceback" not in server.log.read_text(encoding="utf-8")


async def open_when_idle(client: httpx.AsyncClient, url: str, pid: int, load: Load) -> Counter[str]:
    """What the server holds open when no client but this one is connected, by kind or path."""
    await load.close_idle_connections()
    await idle(client, url)
    opened = open_by(pid)
    for _ in range(10):  # it notices closed connections soon
        await asyncio.sleep(1)
        opened = min(opened, open_by(pid), key=Counter.total)
    return opened


def open_by(pid: int) -> Counter[str]:
    opened: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            opened[os.readlink(f"/proc/{pid}/fd/{name}").partition(":[")[0]] += 1
    return opened


def leaked(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """More than before; of the store's files, more than one connection for each of its threads."""
    more = (after - before).items()
    return Counter({path: n for path, n in more if ".sqlite" not in path or after[path] > READERS + 1})


def check(
    samples: list[Sample], load: Load, before: Counter[str], after: Counter[str], ended: dict[str, Any]
) -> None:
    start, end = middles(samples)
    answers, left = load.done.total(), load.left.total()
    print(
        f"\n{MINUTES:g} minutes, {CLIENTS} clients: {answers} answers, {left} clients left "
        f"({left / (answers + left):.0%}), {len(load.problems)} problems\n"
        f"memory: {start / 2**20:.1f} MiB after the warm-up, {end / 2**20:.1f} MiB at the end "
        f"({end / start - 1:+.1%}); descriptors when idle: {before.total()} before, {after.total()} after\n"
        f"threads: {samples[-1].threads}; children: {samples[-1].children}; engine: {ended['engine']}\n"
        f"by kind: {dict(load.done)}\nleft: {dict(load.left)}"
    )
    for problem in load.problems[:5]:
        print("  ", problem)
    assert not load.problems
    assert load.left.total() > LEAVING / 2 * load.done.total(), "too few clients left to prove anything"
    assert abs(end / start - 1) <= MOST_CHANGE
    assert not leaked(before, after), "descriptors leaked"
    engine = ended["engine"]
    assert (engine["running"], engine["waiting"], engine["kv_blocks_used"]) == (0, 0, 0)
    assert ended["responses"].get("failed", 0) == 0


class Waits:
    """Requests `/live` ten times a second: neither a thread nor the engine has a part in it."""

    def __init__(self, url: str) -> None:
        self._url = url.removesuffix("/v1") + "/live"
        self.server: list[float] = []
        self.own: list[float] = []

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=120) as client:
            while True:
                start = time.perf_counter()
                (await client.get(self._url)).raise_for_status()
                answered = time.perf_counter()
                await asyncio.sleep(_BETWEEN)
                self.server.append(answered - start)
                self.own.append(time.perf_counter() - answered - _BETWEEN)

    def line(self) -> str:
        own = f"this client's own loop: {_quantiles(self.own)}"
        return f"/live: {_quantiles(self.server)}; {own} ({len(self.server)} requests)"


def _quantiles(waits: list[float]) -> str:
    ordered = sorted(waits)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"{p50 * 1000:.0f} ms (p50), {p99 * 1000:.0f} (p99), {ordered[-1] * 1000:.0f} (longest)"
