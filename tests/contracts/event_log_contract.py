"""The contract of every store of event logs. A store's test module subclasses this and creates the logs."""

import asyncio
import random

import pytest

from gpt_oss_server.stores.events import TooManyRuns
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.events import EventLog, EventLogs
from tests.doubles.stored import known


def events(start: int, end: int) -> list[bytes]:
    # JSON of any text, with characters that databases mishandle.
    return [f'data: {{"n": {number}, "text": "ü \\u0000 \x00"}}\n\n'.encode() for number in range(start, end)]


async def read(log: EventLog, after: int = -1) -> list[bytes]:
    return [event async for batch in log.read(after) for event in batch]


class EventLogContract:
    database: Database

    @pytest.fixture
    def logs(self) -> EventLogs:
        return EventLogs(self.database)

    async def test_an_ended_log_is_read_from_any_number_on(self, logs: EventLogs) -> None:
        await logs.begin("run")
        await logs.append("run", 0, events(0, 3))
        await logs.append("run", 3, events(3, 7))
        await logs.end("run")
        for after in range(-1, 9):
            log = known(await logs.open("run"))
            await log.check(after)
            assert await read(log, after) == events(after + 1, 7)

    @pytest.mark.parametrize("seed", range(20))
    async def test_concurrent_readers_get_every_event_once_and_in_order(
        self, logs: EventLogs, seed: int
    ) -> None:
        rng = random.Random(seed)
        log = await logs.begin("run")
        total = rng.randrange(1, 40)
        readers = [asyncio.create_task(read(log, after)) for after in (-1, -1, total // 2, total)]
        at = 0
        while at < total:
            end = min(at + rng.randrange(1, 6), total)
            await logs.append("run", at, events(at, end))
            at = end
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
        await logs.end("run")
        got = await asyncio.wait_for(asyncio.gather(*readers), 20)
        assert got == [events(0, total), events(0, total), events(total // 2 + 1, total), []]

    async def test_events_that_are_appended_again_are_skipped(self, logs: EventLogs) -> None:
        await logs.begin("run")
        await logs.append("run", 0, events(0, 3))
        await logs.append("run", 0, events(0, 3))
        await logs.append("run", 1, events(1, 5))
        await logs.end("run")
        assert await read(known(await logs.open("run"))) == events(0, 5)

    async def test_a_gap_is_refused(self, logs: EventLogs) -> None:
        assert await logs.open("run") is None
        await logs.begin("run")
        with pytest.raises(ValueError, match="missing"):
            await logs.append("run", 1, events(1, 2))
        await logs.end("run")
        assert await read(known(await logs.open("run"))) == []

    async def test_append_returns_whether_to_cancel_the_run(self, logs: EventLogs) -> None:
        for run_id in ("run", "other"):
            await logs.begin(run_id)
            assert await logs.append(run_id, 0, events(0, 1)) is False
        await logs.request_cancel("run")
        await logs.request_cancel("unknown")
        assert await logs.append("run", 1, events(1, 2)) is True
        assert await logs.append("other", 1, events(1, 2)) is False
        for run_id in ("run", "other"):
            await logs.end(run_id)
            assert await read(known(await logs.open(run_id))) == events(0, 2)

    async def test_deleting_a_log_keeps_the_others(self, logs: EventLogs) -> None:
        for run_id in ("run", "other"):
            await logs.begin(run_id)
            await logs.append(run_id, 0, events(0, 2))
            await logs.end(run_id)
        await logs.delete("run")
        await logs.delete("unknown")
        assert await logs.open("run") is None
        assert await read(known(await logs.open("other"))) == events(0, 2)

    async def test_an_owner_finds_its_own_logs_alone(self, logs: EventLogs) -> None:
        alice, bob = logs.of("alice"), logs.of("bob")
        await alice.begin("run")
        await logs.append("run", 0, events(0, 3))
        for other in (bob, logs):
            assert await other.open("run") is None
            await other.request_cancel("run")
        assert await logs.append("run", 3, events(3, 4)) is False
        await alice.request_cancel("run")
        assert await logs.append("run", 4, events(4, 5)) is True
        await logs.end("run")
        await bob.delete("run")
        log = known(await alice.open("run"))
        assert await read(log) == events(0, 5)
        await alice.delete("run")
        assert await alice.open("run") is None

    async def test_an_owner_has_no_more_runs_than_it_may(self, logs: EventLogs) -> None:
        async def begin(number: int) -> bool:
            try:
                await logs.of("alice").begin(f"run_{number}", most=3)
            except TooManyRuns:
                return False
            return True

        begun = await asyncio.gather(*map(begin, range(12)))
        assert sum(begun) == 3
        await logs.of("bob").begin("other", most=1)
        first = f"run_{begun.index(True)}"
        await logs.end(first)
        assert await begin(12) is True
        assert await begin(13) is False
