"""Every reader of a run's log gets each event once and in order, from any event on; logs are bounded."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from gpt_oss_server.errors import EventsForgotten
from gpt_oss_server.http.sse import encode
from gpt_oss_server.runs.background.driven import BackgroundRun
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.stores.events import NO_RECORDS, Records
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sql.events import EventLog, EventLogs
from gpt_oss_server.stores.sql.sizes import statistics
from gpt_oss_server.stores.sql.sweeper import Bounds
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.waiting import until


class CountingRun:
    """Yields `events` numbered events in batches of random sizes, with random pauses."""

    owner = ""

    def __init__(self, run_id: str, events: int, *, seed: int = 0, text: str = "") -> None:
        self.id = run_id
        self.tape = None
        self.ending = False
        self.open = False
        self._left = events
        self._made = 0
        self._rng = random.Random(seed)
        self._text = text

    async def events(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        self.open = True
        try:
            while self._left:
                for _ in range(self._rng.randrange(3)):
                    await asyncio.sleep(0)
                batch = [self._next() for _ in range(min(self._left, self._rng.randrange(1, 5)))]
                self._left -= len(batch)
                self.ending = not self._left
                yield batch
        finally:
            self.open = False

    async def stopped(self) -> list[dict[str, Any]]:
        self.ending = True
        return [self._next()]

    def _next(self) -> dict[str, Any]:
        self._made += 1
        return {"type": "event", "sequence_number": self._made - 1, "text": self._text}


def logs(kind: type[EventLogs] = EventLogs, **bounds: Any) -> Any:
    made = kind(MemoryDatabase(Bounds(responses=300, **bounds)))  # it sweeps after each write
    made.linger = 0.0
    return made


def runs(*, max_running: int = 8, **bounds: Any) -> BackgroundRuns[CountingRun]:
    return BackgroundRuns(encode, logs(**bounds), max_running=max_running)


def expected(start: int, end: int, text: str = "") -> list[bytes]:
    return [encode({"type": "event", "sequence_number": n, "text": text}) for n in range(start, end)]


async def read(log: EventLog, after: int = -1) -> list[bytes]:
    return [event async for batch in log.read(after) for event in batch]


async def read_some(log: EventLog, after: int, count: int) -> list[bytes]:
    """The events of a connection that breaks after at least `count` events, if there are that many."""
    got: list[bytes] = []
    stream = log.read(after)
    async for batch in stream:
        got += batch
        if len(got) >= count:
            break
    await stream.aclose()
    return got


@pytest.mark.parametrize("seed", seeds(60, proofs=300))
async def test_any_split_of_live_and_replay_gives_the_same_events(seed: int) -> None:
    rng = random.Random(seed)
    total = rng.randrange(1, 60)
    log = await runs().start(CountingRun("run", total, seed=seed))

    async def reconnecting() -> list[bytes]:
        local, got = random.Random(rng.random()), []
        while True:
            for _ in range(local.randrange(4)):
                await asyncio.sleep(0)
            part = await read_some(log, len(got) - 1, local.randrange(1, 10))
            if not part:
                return got
            got += part

    readers = [reconnecting() for _ in range(4)]
    for got in await asyncio.gather(*readers, read(log)):
        assert got == expected(0, total)
    for after in range(-1, total + 2):
        assert await read(log, after) == expected(after + 1, total)


@pytest.mark.parametrize("here", [True, False], ids=["here", "by another process"])
@pytest.mark.parametrize("after_ticks", range(12))
async def test_a_run_can_be_stopped_at_any_time_and_its_readers_end(after_ticks: int, here: bool) -> None:
    background = runs()
    log = await background.start(run := CountingRun("run", 1_000))
    reader = asyncio.create_task(read(log))
    for _ in range(after_ticks):
        await asyncio.sleep(0)
    await (background.stop("run") if here else background.logs.request_cancel("run"))
    got = await asyncio.wait_for(reader, 5)
    assert got == expected(0, len(got))
    assert 1 <= len(got) < 1_000
    assert not run.open
    assert run.ending
    if not here:
        await until(lambda: background.running("run") is None)
    assert background.running("run") is None
    await background.stop("run")


async def test_a_run_that_breaks_ends_its_log(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(CountingRun):
        async def events(self) -> AsyncGenerator[list[dict[str, Any]], None]:
            yield [self._next()]
            raise RuntimeError("a defect")

    log = await runs().start(Broken("run", 9))
    assert await asyncio.wait_for(read(log), 5) == expected(0, 1)
    assert "a defect" in caplog.text


async def used_bytes(background: BackgroundRuns[CountingRun]) -> int:
    return (await background.logs.database.read(statistics)).log_bytes


async def test_logs_of_ended_runs_are_evicted_first_beginning_with_the_oldest() -> None:
    background = runs(log_bytes=50_000)
    for number in range(10):
        await read(await background.start(CountingRun(str(number), 10, text="x" * 1_000)))
        assert await used_bytes(background) <= 50_000
    kept = [number for number in range(10) if await background.logs.open(str(number)) is not None]
    assert kept == list(range(10 - len(kept), 10))
    assert len(kept) == 4


async def test_a_log_that_exceeds_the_bound_alone_forgets_its_beginning_and_raises() -> None:
    background = runs(log_bytes=20_000)
    log = await background.start(CountingRun("run", 100, text="x" * 1_000))
    await until(lambda: background.running("run") is None)
    assert await used_bytes(background) <= 20_000
    with pytest.raises(EventsForgotten):
        await log.check(-1)
    with pytest.raises(EventsForgotten):
        await read(log)
    assert await read(log, 95) == expected(96, 100, "x" * 1_000)


async def test_old_logs_are_evicted() -> None:
    background = runs(log_age=0.05)
    await read(await background.start(CountingRun("run", 3)))
    await asyncio.sleep(0.1)
    assert await used_bytes(background) == 0
    assert await background.logs.open("run") is None


class Slow(CountingRun):
    """A run that takes a while to stop, like a tool, and counts its cancellations."""

    cancellations = 0

    async def events(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        yield [self._next()]
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            self.cancellations += 1
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                self.cancellations += 1
            raise


async def test_a_run_that_is_stopped_twice_is_cancelled_once() -> None:
    background = runs()
    await background.start(run := Slow("run", 1))
    first = asyncio.create_task(background.stop("run"))
    await asyncio.sleep(0.01)
    await asyncio.gather(first, background.stop("run"))
    assert run.cancellations == 1
    assert background.running("run") is None


async def test_closing_waits_for_all_runs_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[float] = []

    async def wait(self: Any, seconds: float) -> None:
        waiting.append(seconds)
        await until(lambda: len(waiting) == 3)

    monkeypatch.setattr(BackgroundRun, "wait", wait)
    background = runs()
    for number in range(3):
        await background.start(Slow(str(number), 1))
    await background.close()
    assert not any(background.running(str(number)) for number in range(3))


@pytest.mark.parametrize("after_ticks", range(1, 40))
async def test_a_run_that_is_stopped_during_a_write_loses_no_events(after_ticks: int) -> None:
    class Slowly(EventLogs):
        """Like a database: a cancelled call may or may not have taken effect."""

        async def append(
            self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
        ) -> bool:
            await asyncio.sleep(0)
            cancelled = await super().append(run_id, first, events, records)
            await asyncio.sleep(0)
            return cancelled

    background = BackgroundRuns[CountingRun](encode, logs(Slowly), max_running=1)
    log = await background.start(CountingRun("run", 1_000, seed=after_ticks))
    for _ in range(after_ticks):
        await asyncio.sleep(0)
    await background.stop("run")
    got = await asyncio.wait_for(read(log), 5)
    assert 1 <= len(got) < 1_000
    assert got == expected(0, len(got))
